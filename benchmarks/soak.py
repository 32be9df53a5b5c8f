"""The service under everything at once: many connections, large batches, replaced and corrupt models, and slow clients.

    python benchmarks/soak.py                                       # a minute; fits a model of 5,000 items first
    python benchmarks/soak.py --seconds 10 --items 500 --users 2000    # a quick check that it runs

The script sends single requests over 200 connections at a fixed rate, and batches of 1,000 one after the other. Meanwhile it
replaces the model every two seconds, every fifth time on average by a corrupt one, and compares every list with the library's.
Then slow clients come: unfinished and endless headers, slow bodies, and responses that nobody reads. Everything is drawn from
one seed, and all traffic goes to 127.0.0.1.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import shutil
import socket
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from serve import Server, draw_histories, encode_request

import gramian as gr
from gramian.data.synthetic import clustered

RECIPES = (gr.EASE(l2=500), gr.EDLAE(dropout=0.3, l2=100))
N_HISTORIES = 1_000  # distinct
EVENTS_PER_USER = 74
LIST_LENGTH = 10
REPLACEMENT_SECONDS = 2.0
CORRUPT_SHARE = 0.2
SCORE_TOLERANCE = 1e-4  # relative: kernels add in another order for other numbers of users
N_SLOW_CLIENTS = 300
SLOW_SECONDS = 20.0
Expected = list[list[tuple[list[int], list[float]]]]  # for each history and each recipe: items and scores


def is_expected(ranked: dict[str, Any], expected: list[tuple[list[int], list[float]]]) -> bool:
    """Return whether a list is that of one of the models: the same items, or others with the same scores at the same ranks."""
    items, scores = [row["item"] for row in ranked["items"]], [row["score"] for row in ranked["items"]]
    return any(
        items == expected_items
        or (len(scores) == len(expected_scores) and np.allclose(scores, expected_scores, rtol=SCORE_TOLERANCE))
        for expected_items, expected_scores in expected
    )


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return status and body of the next response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


class Singles:
    """Single requests over many connections at a fixed rate, with the latency and the outcome of each."""

    def __init__(self, port: int, histories: list[list[int]], expected: Expected, seed: int) -> None:
        self.port, self.expected, self.rng = port, expected, random.Random(seed)
        self.requests = [encode_request("/recommend", {"history": items, "k": LIST_LENGTH}) for items in histories]
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []

    async def run(self, n_connections: int, rate: float, seconds: float) -> None:
        """Send for some seconds, `rate` requests per second in total."""
        self.end = time.perf_counter() + seconds
        await asyncio.gather(*(self.send(n_connections / rate) for _ in range(n_connections)))

    async def send(self, interval: float) -> None:
        await asyncio.sleep(self.rng.random() * interval)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while time.perf_counter() < self.end:
            number, started = self.rng.randrange(len(self.requests)), time.perf_counter()
            writer.write(self.requests[number])
            status, body = await read_response(reader)
            self.seconds.append(time.perf_counter() - started)
            is_right = status != 200 or is_expected(json.loads(body), self.expected[number])
            self.outcomes[str(status) if is_right else "wrong list"] += 1
            await asyncio.sleep(max(0.0, started + interval - time.perf_counter()))
        writer.close()


def send_batches(port: int, histories: list[list[int]], expected: Expected, size: int, seconds: float) -> Counter[str]:
    """Send batches one after the other, in a process of its own, and count the outcomes."""
    outcomes: Counter[str] = Counter()

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        rng, end = random.Random(0), time.perf_counter() + seconds
        while time.perf_counter() < end:
            numbers = [rng.randrange(len(histories)) for _ in range(size)]
            writer.write(encode_request("/recommend/batch", {"histories": [histories[n] for n in numbers], "k": LIST_LENGTH}))
            status, body = await read_response(reader)
            lists = json.loads(body)["lists"] if status == 200 else []
            are_right = all(is_expected(ranked, expected[n]) for ranked, n in zip(lists, numbers, strict=status == 200))
            outcomes[str(status) if are_right else "wrong list"] += 1
        writer.close()

    asyncio.run(send())
    return outcomes


def replace_models(folder: Path, sources: list[Path], seconds: float, seed: int) -> Counter[str]:
    """Save another model over the folder again and again, or put a corrupt one there. Runs in a process of its own."""
    models = [gr.load(source) for source in sources]
    rng, end, outcomes = random.Random(seed), time.perf_counter() + seconds, Counter[str]()
    while time.perf_counter() < end:
        time.sleep(REPLACEMENT_SECONDS)
        is_corrupt = rng.random() < CORRUPT_SHARE
        (corrupt_folder if is_corrupt else models[rng.randrange(len(models))].save)(folder)
        outcomes["corrupt" if is_corrupt else "replaced"] += 1
    return outcomes


def corrupt_folder(folder: Path) -> None:
    """Put a copy with a flipped byte in the place of a model."""
    copy, old = folder.with_name("copy"), folder.with_name("old")
    shutil.copytree(folder, copy)
    arrays = copy / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 0xFF
    arrays.write_bytes(content)
    folder.rename(old)
    copy.rename(folder)
    shutil.rmtree(old)


class SlowClients:
    """Connections that hold the service up, each in its own way, until `seconds` are over."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port, self.end = port, time.perf_counter() + seconds

    def connect(self) -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        return line

    def trickle(self, start: bytes, more: bytes) -> None:
        """Open many connections, send the start of a request on each and then a few bytes every second."""
        with ExitStack() as stack:
            lines = [stack.enter_context(self.connect()) for _ in range(N_SLOW_CLIENTS)]
            content = start
            while time.perf_counter() < self.end:
                for number, line in enumerate(lines):
                    try:
                        line.sendall(content)
                    except OSError:  # closed by the service: come again
                        lines[number] = stack.enter_context(self.connect())
                content = more
                time.sleep(1)

    def send_endless_header(self) -> None:
        while time.perf_counter() < self.end:
            with self.connect() as line:
                try:
                    line.sendall(b"GET / HTTP/1.1\r\nX-Endless: ")
                    while time.perf_counter() < self.end:
                        line.sendall(b"x" * 100_000)
                except OSError:
                    continue

    def leave_unread(self, request: bytes) -> None:
        with ExitStack() as stack:
            while time.perf_counter() < self.end:
                line = stack.enter_context(self.connect())
                line.sendall(request)
                time.sleep(0.2)

    async def run(self, unread: bytes) -> None:
        """Let all of them come at once."""
        slow_body = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
        await asyncio.gather(
            asyncio.to_thread(self.trickle, b"GET /health HTTP/1.1\r\nX-Slow: ", b"x"),
            asyncio.to_thread(self.trickle, slow_body, b" "),
            asyncio.to_thread(self.send_endless_header),
            asyncio.to_thread(self.leave_unread, unread),
        )


async def ask_health(port: int, seconds: float) -> list[float]:
    """Ask /health on new connections, and return how long each answer took."""
    latencies, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await read_response(reader))[0] == 200
        writer.close()
        latencies.append(time.perf_counter() - started)
        await asyncio.sleep(0.05)
    return latencies


def describe_latencies(seconds: list[float]) -> str:
    """Return the median, the 99th percentile and the maximum in milliseconds."""
    p50, p99 = np.quantile(seconds, [0.5, 0.99]) * 1e3
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, at most {max(seconds) * 1e3:.0f} ms"


async def soak(server: Server, folder: Path, models: list[gr.Recommender], options: argparse.Namespace) -> None:
    """Run both parts and print what happened."""
    histories = draw_histories(models[0], N_HISTORIES)
    ranked = [model.recommend_for(histories, LIST_LENGTH) for model in models]
    expected: Expected = [[(lists.items[n], lists.scores[n]) for lists in ranked] for n in range(N_HISTORIES)]
    singles = Singles(server.port, histories, expected, options.seed)
    loop, seconds = asyncio.get_running_loop(), options.seconds
    sources = [folder.with_name(f"source-{number}") for number in range(len(models))]
    for model, source in zip(models, sources, strict=True):
        model.save(source)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        await singles.run(options.connections, options.rate, min(5, seconds))
        print(f"singles alone:     {describe_latencies(singles.seconds)}")
        singles.seconds.clear()
        batches = loop.run_in_executor(
            pool, send_batches, server.port, histories, expected, options.batch, seconds + min(5, seconds)
        )
        await singles.run(options.connections, options.rate, min(5, seconds))
        print(f"beside batches:    {describe_latencies(singles.seconds)}")
        singles.seconds.clear()
        replacing = loop.run_in_executor(pool, replace_models, folder, sources, seconds, options.seed)
        await singles.run(options.connections, options.rate, seconds)
        print(f"and replacements:  {describe_latencies(singles.seconds)}")
        print(f"single requests:   {dict(singles.outcomes)}")
        print(f"batches of {options.batch:,}:  {dict(await batches)}")
        print(f"models:            {dict(await replacing)}")
    before = server.process.memory_info().rss
    unread = encode_request("/recommend/batch", {"histories": histories, "k": 500})
    slow_seconds = min(SLOW_SECONDS, seconds)
    _, latencies = await asyncio.gather(
        SlowClients(server.port, slow_seconds).run(unread), ask_health(server.port, slow_seconds)
    )
    print(f"/health beside slow clients: {describe_latencies(latencies)}, {len(latencies)} answers")
    print(f"memory: {before / 1e6:.0f} MB before the slow clients, {server.process.memory_info().rss / 1e6:.0f} MB after")


def main(options: argparse.Namespace) -> None:
    events = clustered(options.users, options.items, EVENTS_PER_USER * options.users, seed=options.seed)
    models = [recipe.fit(events) for recipe in RECIPES]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "m"
        models[0].save(folder)
        server = Server(folder, encode_request("/recommend", {"history": [0]}))
        try:
            asyncio.run(soak(server, folder, models, options))
        finally:
            server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100, help="single requests per second")
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
