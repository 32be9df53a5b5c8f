"""The service under load: lists per second and latency over HTTP, single requests and batches; memory; time to start.

    python benchmarks/serve.py            # fits and saves a model of 20,000 items at the first run, into benchmarks/.scratch
    python benchmarks/serve.py --items 500 --users 2000 --requests 50 --memory 0 --no-journal    # a quick check that it runs

One server process and one client process share the machine. The client is wrk for single requests, where it is installed, and
this script otherwise. Histories have 50 items, drawn in proportion to their popularity.
"""

import argparse
import compileall
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil
from journal import append

import gramian as gr
from gramian.data.synthetic import clustered

WRK_SCRIPT = """
bodies, i = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
request = function()
  i = i % #bodies + 1
  return wrk.format("POST", "/recommend", {["Content-Type"] = "application/json"}, bodies[i])
end
"""
SCRATCH = Path(__file__).parent / ".scratch"
EVENTS_PER_USER = 74
HISTORY_LENGTH = 50
N_HISTORIES = 1_000  # distinct requests
N_STARTS = 3
N_BATCHES = 20
WRK_SECONDS = 10
SERVE = [sys.executable, "-c", "from gramian.cli.main import run; run()", "serve"]


def fit_model(folder: Path, n_users: int, n_items: int) -> gr.Recommender:
    """Fit and save the model unless its folder exists, and load it."""
    if not folder.exists():
        titles = {item: f"Item {item} of the catalog" for item in range(n_items)}
        gr.EASE(l2=500).fit(clustered(n_users, n_items, EVENTS_PER_USER * n_users).with_titles(titles)).save(folder)
    return gr.load(folder)


def draw_histories(model: gr.Recommender, n: int) -> list[list[int]]:
    """Draw histories of distinct items in proportion to their popularity."""
    rng = np.random.default_rng(0)
    items, counts = np.array(model.items), model.catalog.popularity
    return [rng.choice(items, HISTORY_LENGTH, replace=False, p=counts / counts.sum()).tolist() for _ in range(n)]


class Server:
    """`gramian serve` as a process; `seconds` is the time from its start to its first list."""

    def __init__(self, folder: Path, request: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        started = time.perf_counter()
        self.process = psutil.Popen([*SERVE, str(folder), "--port", str(self.port), "--quiet"], stderr=subprocess.DEVNULL)
        while True:
            try:
                send_load(self.port, [request], 1, 1)
                break
            except ConnectionRefusedError:
                if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
                    raise RuntimeError("the server ended before it answered") from None
                time.sleep(0.01)
        self.seconds = time.perf_counter() - started
        while not is_ok(f"http://127.0.0.1:{self.port}/ready"):
            time.sleep(0.05)

    def private_bytes(self) -> int:
        """Return the memory without the mapped file, which the system may drop."""
        info = self.process.memory_info()
        return int(info.rss - info.shared)

    def stop(self) -> None:
        """Interrupt the process and wait for its end."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def is_ok(url: str) -> bool:
    """Return whether a URL answers with 200."""
    try:
        with urlopen(url) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def encode_request(path: str, body: dict[str, Any]) -> bytes:
    """Return a POST request as bytes."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def send_request(connection: socket.socket, request: bytes) -> None:
    """Send a request and read its response to the end."""
    connection.sendall(request)
    received = connection.recv(1 << 20)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), received
    remaining = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]) - len(body)
    while remaining > 0:
        remaining -= len(connection.recv(1 << 20))


def send_load(port: int, requests: list[bytes], n: int, n_connections: int) -> tuple[float, np.ndarray]:
    """Send n requests over connections that send the next one after each response; return total seconds and seconds of each."""
    seconds, numbers = np.zeros(n), iter(range(n))

    def send_all() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in numbers:
                started = time.perf_counter()
                send_request(connection, requests[number % len(requests)])
                seconds[number] = time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(n_connections) as pool:
        for future in [pool.submit(send_all) for _ in range(n_connections)]:
            future.result()
    return time.perf_counter() - started, seconds


def measure_with_wrk(port: int, bodies: list[str], n_connections: int) -> dict[str, Any]:
    """Return requests per second and percentiles in milliseconds, measured by wrk."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "requests.lua"
        (Path(folder) / "bodies").write_text("\n".join(bodies))
        script.write_text(WRK_SCRIPT.replace("BODIES", f"{folder}/bodies"))
        options = ["-t1", f"-c{n_connections}", f"-d{WRK_SECONDS}s", "--latency", "-s", str(script)]
        command = ["wrk", *options, f"http://127.0.0.1:{port}"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in output, output
    percentiles = dict(re.findall(r"(50|99)%\s+([\d.]+m?s)", output))
    row: dict[str, Any] = {
        f"p{percent}_ms": float(duration.rstrip("ms")) * (1 if duration.endswith("ms") else 1_000)
        for percent, duration in percentiles.items()
    }
    return row | {"per_second": float(output.partition("Requests/sec:")[2].split()[0]), "by": "wrk"}


def measure_single(port: int, histories: list[list[int]], requests: list[bytes], n: int, n_connections: int) -> dict[str, Any]:
    """Return requests per second and percentiles in milliseconds of single requests."""
    send_load(port, requests, min(n, 200), n_connections)  # warm up
    if shutil.which("wrk"):
        return measure_with_wrk(port, [json.dumps({"history": items, "k": 10}) for items in histories], n_connections)
    total, seconds = send_load(port, requests, n, n_connections)
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
    return {"per_second": n / total, "p50_ms": p50, "p99_ms": p99, "by": "script"}


def main(
    n_users: int, n_items: int, n_requests: int, n_connections: int, batch_size: int, memory_requests: int, use_journal: bool
) -> None:
    folder = SCRATCH / f"served-{n_users}-{n_items}"
    histories = draw_histories(fit_model(folder, n_users, n_items), N_HISTORIES)
    single = [encode_request("/recommend", {"history": items, "k": 10}) for items in histories]
    batches = [
        encode_request("/recommend/batch", {"histories": (histories[start:] + histories[:start])[:batch_size], "k": 10})
        for start in range(4)
    ]
    compileall.compile_dir(Path(gr.__file__).parent, quiet=1)  # as pip does
    starts = []
    for _ in range(N_STARTS):
        server = Server(folder, single[0])
        starts.append(server.seconds)
        if len(starts) < N_STARTS:
            server.stop()
    try:
        row = measure_single(server.port, histories, single, n_requests, n_connections)
        row |= {"connections": n_connections, "start": starts}
        print(f"start to first list   {min(starts):.2f} s, best of {', '.join(f'{s:.2f}' for s in starts)}")
        latency = f"p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, by {row['by']}"
        print(f"single, {n_connections} connections  {row['per_second']:6.0f} lists/s, {latency}")
        total, seconds = send_load(server.port, batches, N_BATCHES, 2)
        per_second = N_BATCHES * batch_size / total
        row |= {"batch": batch_size, "users_per_second": per_second}
        print(f"batches of {batch_size:,}      {per_second:6.0f} users/s, {np.median(seconds) * 1e3:.0f} ms a batch")
        memory = [server.private_bytes()]
        for part in range(10 if memory_requests else 0):
            send_load(server.port, single, memory_requests // 10, n_connections)
            memory.append(server.private_bytes())
            sent = (part + 1) * memory_requests // 10
            print(f"memory after {sent:>7,} requests: {memory[-1] / 1e6:.1f} MB", flush=True)
        if use_journal:
            append("serve", row | {"requests": memory_requests, "bytes": memory})
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", dest="n_users", type=int, default=136_000)
    parser.add_argument("--items", dest="n_items", type=int, default=20_000)
    parser.add_argument("--requests", dest="n_requests", type=int, default=4_000)
    parser.add_argument("--connections", dest="n_connections", type=int, default=4)
    parser.add_argument("--batch", dest="batch_size", type=int, default=500)
    parser.add_argument(
        "--memory", dest="memory_requests", type=int, default=100_000, help="requests over which memory is measured"
    )
    parser.add_argument("--no-journal", dest="use_journal", action="store_false", help="add no row to results/serve.jsonl")
    main(**vars(parser.parse_args()))
