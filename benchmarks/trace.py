"""How many functions and files one job goes through: a measure of how far a reader has to jump.

    python benchmarks/trace.py fit          # gramian fit ratings.csv --model edlae --out m
    python benchmarks/trace.py recommend    # one POST /recommend, after the first

Counts Python functions of the package only, without module bodies, comprehensions and lambdas. A call from one file to another
counts once for each pair of functions.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gramian as gr

PACKAGE = str(Path(gr.__file__).parent)


class Trace:
    """Calls within the package while it is active, in all threads started after it was installed."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.edges: set[tuple[str, str, str, str]] = set()
        self.is_active = False
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not self.is_active or event != "call" or not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
            return
        called = code.co_filename, code.co_qualname
        self.functions.add(called)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.edges.add((caller.f_code.co_filename, caller.f_code.co_qualname, *called))

    def __str__(self) -> str:
        files = {file for file, _ in self.functions}
        return f"{len(self.functions)} functions in {len(files)} files, {len(self.edges)} calls from one file to another"


def fit(folder: Path) -> Callable[[], None]:
    events = gr.datasets.load("movielens", min_value=4)
    events.frame().select("user_id", "item_id").write_csv(folder / "ratings.csv")
    from gramian.cli.main import build_app  # noqa: PLC0415

    arguments = ["fit", str(folder / "ratings.csv"), "--model", "edlae", "--out", str(folder / "m")]
    app = build_app()
    return lambda: app(arguments, standalone_mode=False)


def recommend(folder: Path) -> Callable[[], None]:
    from fastapi.testclient import TestClient  # noqa: PLC0415

    from gramian.service.app import create_app  # noqa: PLC0415

    gr.EDLAE().fit(gr.datasets.load("movielens", min_value=4)).save(folder / "m")
    client = TestClient(create_app([folder / "m"]), base_url="http://127.0.0.1")
    client.__enter__()
    while client.get("/ready").status_code != 200:  # warming up calls other functions
        time.sleep(0.05)
    return lambda: print(client.post("/recommend", json={"history": [260, 1196], "k": 3}).status_code)


def main(job: str) -> None:
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        run = {"fit": fit, "recommend": recommend}[job](Path(folder))
        run()  # compile and import first
        trace.is_active = True
        run()
        trace.is_active = False
        print(f"{job}: {trace}")


if __name__ == "__main__":
    main(*sys.argv[1:])
