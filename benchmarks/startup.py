"""Start-up: the import, the first fit on a machine with and without `gramian warm-up`, and the first answers of the service.

    python benchmarks/startup.py
    python benchmarks/startup.py --before ../older-checkout/src    # the import of another revision, in the same run

Every process is a new one. Kernels are cached in a folder that is empty at first, as on a new machine. The dependencies are
NumPy, SciPy, Numba and Polars, which no fit can do without: the import of the library is measured against theirs.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from journal import append

N_IMPORTS, N_ANSWERS = 7, 200
DEPENDENCIES = "import numpy, scipy.sparse, scipy.linalg, numba, polars"
IMPORTS = {"import": "import gramian", "first_use": "import gramian as gr; gr.read; gr.EASE", "dependencies": DEPENDENCIES}
COMMAND = [sys.executable, "-c", "from gramian.cli.main import run; run()"]


def time_imports(source: str | None) -> dict[str, float]:
    """Return the median seconds of new processes that import something, less those of a process that does nothing."""
    environment = os.environ | ({"PYTHONPATH": source} if source else {})
    jobs = {"nothing": "pass", **IMPORTS}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(N_IMPORTS + 1):
        for name, code in jobs.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}  # the first compiles bytecode
    return {name: medians[name] - medians["nothing"] for name in IMPORTS}


def time_command(cache: str, *words: str) -> float:
    """Return the seconds of a command that keeps its kernels in a folder."""
    started = time.perf_counter()
    subprocess.run([*COMMAND, *words], check=True, env=os.environ | {"NUMBA_CACHE_DIR": cache}, capture_output=True)
    return time.perf_counter() - started


def time_service(cache: str, model: str) -> dict[str, float]:
    """Return the seconds from the start of the service until it is ready, and the milliseconds of its first answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.perf_counter()
    words = [*COMMAND, "serve", model, "--port", str(port), "--quiet"]
    server = subprocess.Popen(words, env=os.environ | {"NUMBA_CACHE_DIR": cache}, stderr=subprocess.DEVNULL)
    try:
        while ask(port, "GET", "/ready")[0] != 200:
            if server.poll() is not None:
                raise RuntimeError("the server ended before it was ready")
            time.sleep(0.01)
        ready = time.perf_counter() - started
        body = json.dumps({"history": [260, 1196, 1240]})
        answers = [ask(port, "POST", "/recommend", body) for _ in range(N_ANSWERS)]
        if any(status != 200 for status, _ in answers):
            raise RuntimeError("a request failed")
        milliseconds = [1000 * seconds for _, seconds in answers]
        return {"ready_seconds": ready, "first_ms": milliseconds[0], "slowest_ms": max(milliseconds)}
    finally:
        server.terminate()
        server.wait()


def ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, float]:
    """Return the status of an answer, 0 where nobody listens, and its seconds."""
    started = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - started
    except ConnectionRefusedError:
        return 0, time.perf_counter() - started
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the src folder of another revision, to import as well")
    options = parser.parse_args()
    row: dict[str, Any] = {"imports": time_imports(None)}
    if options.before:
        row["imports_before"] = time_imports(str(Path(options.before).resolve()))
    for name, key in (("now", "imports"), ("before", "imports_before")):
        for what, seconds in row.get(key, {}).items():
            print(f"{name:<7} {what:<13} {seconds:.3f} s, {seconds / row[key]['dependencies']:.2f} × the dependencies")
    fit = ["fit", "movielens", "--min-value", "4", "--model", "edlae"]
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = f"{folder}/cold", f"{folder}/warm"
        row["first_fit"] = time_command(cold, *fit, "--out", f"{folder}/a")
        row["second_fit"] = time_command(cold, *fit, "--out", f"{folder}/b")
        row["warm_up"] = time_command(warm, "warm-up")
        row["first_fit_after_warm_up"] = time_command(warm, *fit, "--out", f"{folder}/c")
        for what in ("first_fit", "second_fit", "warm_up", "first_fit_after_warm_up"):
            print(f"{what.replace('_', ' '):<24} {row[what]:.1f} s, {row[what] / row['second_fit']:.1f} × the second fit")
        for name in ("service_cold", "service_warm"):  # kernels of serving are compiled by the first start
            row[name] = time_service(warm, f"{folder}/c")
            facts = row[name]
            print(f"{name}: ready after {facts['ready_seconds']:.1f} s, then {facts['first_ms']:.1f} ms, "
                  f"slowest of {N_ANSWERS} {facts['slowest_ms']:.1f} ms")  # fmt: skip
    append("startup", row)


if __name__ == "__main__":
    main()
