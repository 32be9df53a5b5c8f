"""What an installed Gramian must be able to do. Run it where the repository is not importable: `python smoke_test.py`."""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.resources import files

import gramian as gr

STARTING = 120  # seconds that the service may take; the first start on a machine compiles kernels


def run_command(*words: str) -> str:
    """Run the command line and return what it prints."""
    return subprocess.run([sys.executable, "-m", "gramian", *words], check=True, capture_output=True, text=True).stdout


def check_package() -> None:
    """Check the files and the metadata of the package."""
    package = files("gramian")
    for path in (
        "py.typed",
        "service/page/index.html",
        "service/page/app.js",
        "data/bundled/README.md",
        "data/bundled/ratings.parquet",
    ):
        assert package.joinpath(path).is_file(), path
    metadata = importlib.metadata.metadata("gramian")
    assert metadata["Version"] == gr.__version__ == run_command("--version").strip()
    assert metadata["License-Expression"]
    assert "](docs/" not in metadata["Description"], "a relative link leads nowhere on a package index"
    licences = [str(path) for path in importlib.metadata.files("gramian") or () if "licenses" in str(path)]
    assert any("LICENSE" in path for path in licences), licences


def check_library() -> None:
    """Fit, evaluate, save, load and explain in Python."""
    events = gr.datasets.load("movielens", min_value=4).k_core(20)
    split = gr.split.strong(events, seed=0)
    report = gr.evaluate(gr.EDLAE(dropout=0.3, l2=100).fit(split.train), split, ["ndcg@20"])
    assert 0.2 < report["ndcg@20"] < 0.6, report
    model = gr.EDLAE(dropout=0.3, l2=100).fit(events)
    model.save("saved")
    again = gr.load("saved")
    assert again.recommend(model.users, k=5) == model.recommend(model.users, k=5)


def check_command_line() -> None:
    """Use a saved model from the command line, and find the papers' tables."""
    assert "Return of the Jedi" in run_command("recommend", "saved", "--history", "260", "--history", "1196")
    assert "deql-table2" in run_command("benchmark")
    assert "movielens" in run_command("datasets")


def check_service() -> None:
    """Serve a saved model with its page."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gramian", "serve", "saved", "--port", "0"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = ""
        while not address:
            line = process.stderr.readline()
            assert line, "the service ended before it listened"
            address = next((word.rstrip(",.;/") for word in line.split() if word.startswith("http://")), "")
        deadline = time.monotonic() + STARTING
        while fetch(f"{address}/ready") is None:
            assert time.monotonic() < deadline, "the service is not ready"
            time.sleep(0.2)
        assert "<html" in (fetch(address) or "")
    finally:
        process.terminate()
        process.communicate()


def fetch(address: str) -> str | None:
    """Return the text at an address, or None while the service cannot answer."""
    try:
        with urllib.request.urlopen(address, timeout=10) as response:
            return str(response.read().decode())
    except OSError:
        return None


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for check in (check_package, check_library, check_command_line, check_service):
            started = time.monotonic()
            check()
            print(f"{check.__name__}: {time.monotonic() - started:.1f} s", flush=True)
        os.chdir("/")  # Windows does not delete the working directory


if __name__ == "__main__":
    main()
