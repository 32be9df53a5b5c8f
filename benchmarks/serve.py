"""The service under load: lists per second and the slowest answers over HTTP, in single requests and in batches; memory; start.

    python benchmarks/serve.py            # fits and saves a model of 20,000 items at the first run, into benchmarks/.scratch

One server process and one client process share the machine: wrk for single requests, where it is installed, and else this
script. Histories have 50 items, drawn as popular as the events are.
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

LUA = """
bodies, i = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
request = function()
  i = i % #bodies + 1
  return wrk.format("POST", "/recommend", {["Content-Type"] = "application/json"}, bodies[i])
end
"""
MODEL = Path(__file__).parent / ".scratch" / "served"
ITEMS, HISTORY = 20_000, 50
SERVE = [sys.executable, "-c", "from gramian.app.cli import run; run()", "serve"]


def fitted() -> gr.Recommender:
    if not MODEL.exists():
        events = clustered(136_000, ITEMS, 10_000_000).with_titles({i: f"Item {i} of the catalog" for i in range(ITEMS)})
        gr.EASE(l2=500).fit(events).save(MODEL)
    return gr.load(MODEL)


def histories(model: gr.Recommender, n: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    items, counts = np.array(model.items), model.events.popularity
    return [rng.choice(items, HISTORY, replace=False, p=counts / counts.sum()).tolist() for _ in range(n)]


class Server:
    """`gramian serve` as a process of its own, and the seconds from its start to its first list."""

    def __init__(self, first: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        started = time.perf_counter()
        self.process = psutil.Popen([*SERVE, str(MODEL), "--port", str(self.port), "--quiet"], stderr=subprocess.DEVNULL)
        while True:
            try:
                load(self.port, [first], 1, 1)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        self.seconds = time.perf_counter() - started
        while not answers(f"http://127.0.0.1:{self.port}/ready"):
            time.sleep(0.05)

    def own_bytes(self) -> int:
        """Memory but the mapped file, which is the system's to keep or drop."""
        facts = self.process.memory_info()
        return int(facts.rss - facts.shared)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def answers(address: str) -> bool:
    try:
        with urlopen(address) as found:
            return bool(found.status == 200)
    except OSError:
        return False


def request(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def answered(line: socket.socket, asked: bytes) -> None:
    """Ask, and read the answer to its end."""
    line.sendall(asked)
    found = line.recv(1 << 20)
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), found
    left = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(line.recv(1 << 20))


def load(port: int, requests: list[bytes], n: int, connections: int) -> tuple[float, np.ndarray]:
    """The seconds that n requests took together and one by one, over connections that ask again when they have an answer."""
    seconds, turn = np.zeros(n), iter(range(n))

    def connection() -> None:
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in turn:
                started = time.perf_counter()
                answered(line, requests[at % len(requests)])
                seconds[at] = time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        for done in [pool.submit(connection) for _ in range(connections)]:
            done.result()
    return time.perf_counter() - started, seconds


def by_wrk(port: int, bodies: list[str], seconds: int, connections: int) -> dict[str, float]:
    """Requests per second and percentiles in milliseconds, by wrk."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "ask.lua"
        (Path(folder) / "bodies").write_text("\n".join(bodies))
        script.write_text(LUA.replace("BODIES", f"{folder}/bodies"))
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), f"http://127.0.0.1:{port}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in said, said
    percentiles = dict(re.findall(r"(50|99)%\s+([\d.]+m?s)", said))
    found = {f"p{at}_ms": float(time.rstrip("ms")) * (1 if time.endswith("ms") else 1_000) for at, time in percentiles.items()}
    return found | {"per_second": float(said.partition("Requests/sec:")[2].split()[0])}


def main(n: int, connections: int, batch: int, memory: int) -> None:
    drawn = histories(fitted(), 1_000)
    single = [request("/recommend", {"history": own, "k": 10}) for own in drawn]
    many = [
        request("/recommend/batch", {"histories": [drawn[(start + i) % len(drawn)] for i in range(batch)], "k": 10})
        for start in range(4)
    ]
    compileall.compile_dir(Path(gr.__file__).parent, quiet=1)  # as pip does
    starts = []
    for _ in range(3):
        server = Server(single[0])
        starts.append(server.seconds)
        if len(starts) < 3:
            server.stop()
    try:
        load(server.port, single, 200, connections)
        if shutil.which("wrk"):
            bodies = [json.dumps({"history": own, "k": 10}) for own in drawn]
            row: dict[str, Any] = by_wrk(server.port, bodies, 10, connections) | {"by": "wrk"}
        else:
            took, seconds = load(server.port, single, n, connections)
            p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
            row = {"per_second": n / took, "p50_ms": p50, "p99_ms": p99, "by": "script"}
        row |= {"connections": connections, "start": starts}
        print(f"start to first list   {min(starts):.2f} s, best of {', '.join(f'{s:.2f}' for s in starts)}")
        latency = f"p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms, by {row['by']}"
        print(f"single, {connections} connections  {row['per_second']:6.0f} lists/s, {latency}")
        rounds = 20
        took, seconds = load(server.port, many, rounds, 2)
        row |= {"batch": batch, "users_per_second": rounds * batch / took}
        print(f"batches of {batch:,}      {rounds * batch / took:6.0f} users/s, {np.median(seconds) * 1e3:.0f} ms a batch")
        curve = [server.own_bytes()]
        for _ in range(10 if memory else 0):
            load(server.port, single, memory // 10, connections)
            curve.append(server.own_bytes())
            print(f"memory after {len(curve) * memory // 10 - memory // 10:>7,} requests: {curve[-1] / 1e6:.1f} MB", flush=True)
        append("serve", row | {"requests": memory, "bytes": curve})
    finally:
        server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", dest="n", type=int, default=4_000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--memory", type=int, default=100_000, help="requests over which memory is watched")
    main(**vars(parser.parse_args()))
