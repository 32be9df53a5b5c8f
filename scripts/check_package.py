"""Build sdist and wheel, install the wheel in a clean environment outside the repository, and test it there.

    python scripts/check_package.py               # with the versions of constraints.txt
    python scripts/check_package.py --minimum     # with the lowest versions that pyproject.toml allows

The wheel is built from the sdist, so that a source distribution that lacks a file fails, too.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SDIST_HAS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "docs/models.md",
    "benchmarks/papers/movielens.toml",
)
WHEEL_HAS = ("gramian/experiments/papers/movielens.toml", "gramian/service/page/index.html", "gramian/py.typed")
WHEEL_HAS_NOT = ("tests/", "benchmarks/", "docs/", "examples/")
TEST_PACKAGES = ["pytest", "hypothesis", "pandas", "pyarrow", "safetensors", "scikit-learn", "pytrec_eval-terrier"]
# The tests of full-rank models and of ranking draw with an argument of SciPy 1.15 (`rng`), which the package does not need.
MINIMUM_TESTS = ("evaluation/test_evaluate.py", "data/test_interactions.py", "io/test_model_folder.py")


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and end with its error if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "GRAMIAN_DATA")}
    subprocess.run([str(word) for word in command], check=True, env=clean, **options)


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from it; return the wheel after a look at what both contain."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not (missing := set(SDIST_HAS) - names), f"the sdist lacks {missing}"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert not (missing := set(WHEEL_HAS) - names), f"the wheel lacks {missing}"
    assert not (extra := [name for name in names if name.startswith(WHEEL_HAS_NOT)]), f"the wheel has {extra[:5]}"
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minimum", action="store_true", help="install the lowest versions, and run more tests")
    minimum = parser.parse_args().minimum
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        print(f"built {wheel.name} in {time.monotonic() - started:.0f} s", flush=True)
        venv.create(folder / "environment", with_pip=True, upgrade_deps=True)  # old versions of pip resolve slowly
        python = folder / "environment" / ("Scripts" if os.name == "nt" else "bin") / "python"
        constraints = ROOT / ("constraints-minimum.txt" if minimum else "constraints.txt")
        packages = [f"{wheel}[serve,tune,plot]" if minimum else f"{wheel}[serve]"]
        packages += TEST_PACKAGES if minimum else []
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraints, *packages)
        print(f"installed after {time.monotonic() - started:.0f} s", flush=True)
        run(python, ROOT / "scripts" / "smoke_test.py", cwd=folder)
        if minimum:
            tests = [ROOT / "tests" / test for test in MINIMUM_TESTS]
            run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder)
    print(f"the package works: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
