"""The living model: how soon events and deletions are in the answers under a steady load, and a service that is killed often.

    python benchmarks/living.py --items 2000 --users 10000 --rate 100     # a quick look; the defaults are the issue's sizes
    python benchmarks/living.py --chaos 60                                # random events, deletions and kills for a minute

The load is open-loop: requests are due at times that were drawn before, and a latency counts from when its request was due, not
from when it could be sent. A server that stalls therefore shows in the percentiles (no coordinated omission). Client and
server share the machine.
"""

import argparse
import json
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import polars as pl
import psutil
from journal import append
from serve import SCRATCH, SERVE, draw_histories, encode_request, fit_model, send_request

import gramian as gr
from gramian.data.synthetic import clustered

N_NEW_USERS, EVENTS_PER_NEW_USER = 100, 20
N_CONNECTIONS = 8
START_SECONDS = 300.0
CHAOS_RECIPE = gr.EASE(l2=20)
PAUSE_SECONDS = 0.05  # between two actions of the chaos client, so that an hour of it leaves the machine to others
MIN_MEMORY_SAMPLES = 400  # of a process whose memory is judged: it lived for about a minute or longer


def call(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a request and return its JSON."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", content, headers, method=method), timeout=300) as response:
        return dict(json.load(response))


def start_server(folder: Path, log: Path, n_workers: int = 1) -> tuple[psutil.Popen, int]:
    """Start `gramian serve` with a log, and return it with its port once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*SERVE, str(folder), "--port", str(port), "--quiet", "--log", str(log)]
    command += ["--workers", str(n_workers)] if n_workers > 1 else []
    process = psutil.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            call(port, "GET", "/ready")
            return process, port
        except (URLError, ConnectionError, OSError):
            time.sleep(0.05)
    raise RuntimeError("the server is not ready")


class OpenLoad:
    """Requests that are due at given times, sent by a few connections; a context during which they are sent.

    Parameters
    ----------
    port
        Where the server listens.
    requests
        Requests as bytes, sent in turn.
    rate
        How many are due in a second, on average.
    seed
        Of the exponential times between them.
    """

    def __init__(self, port: int, requests: list[bytes], rate: float, seed: int = 0) -> None:
        self.port, self.requests, self.rate = port, requests, rate
        self.rng, self.lock, self.is_over = np.random.default_rng(seed), threading.Lock(), threading.Event()
        self.latencies: list[float] = []
        self.due, self.number = 0.0, 0

    def __enter__(self) -> "OpenLoad":
        self.due = time.perf_counter()
        self.pool = ThreadPoolExecutor(N_CONNECTIONS)
        self.senders = [self.pool.submit(self._send) for _ in range(N_CONNECTIONS)]
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for sender in self.senders:
            sender.result()
        self.pool.shutdown()

    def _send(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.is_over.is_set():
                with self.lock:
                    self.due += self.rng.exponential(1 / self.rate)
                    self.number += 1
                    due, request = self.due, self.requests[self.number % len(self.requests)]
                time.sleep(max(0.0, due - time.perf_counter()))
                send_request(connection, request)
                self.latencies.append(time.perf_counter() - due)

    def percentiles(self) -> dict[str, float]:
        """Return the median, the 99th percentile and the maximum in milliseconds, and how many requests were sent."""
        p50, p99, highest = np.quantile(self.latencies, [0.5, 0.99, 1]) * 1e3
        return {"p50_ms": p50, "p99_ms": p99, "max_ms": highest, "requests": len(self.latencies)}


def measure_updates(n_users: int, n_items: int, rate: float, seconds: float) -> dict[str, Any]:
    """Return latencies without and with an update, and the seconds until an update is visible and a user is forgotten."""
    stored = SCRATCH / f"served-{n_users}-{n_items}"
    model = fit_model(stored, n_users, n_items)
    histories = draw_histories(model, 200)
    requests = [encode_request("/recommend", {"history": items, "k": 10}) for items in histories]
    new = [(n_users + i, item) for i in range(N_NEW_USERS) for item in histories[i][:EVENTS_PER_NEW_USER]]
    row: dict[str, Any] = {"what": "updates", "users": n_users, "items": n_items, "rate": rate}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        model.save(folder)
        process, port = start_server(folder, Path(scratch) / "log")
        try:
            with OpenLoad(port, requests, rate) as load:
                time.sleep(seconds)
            row["idle"] = load.percentiles()
            with OpenLoad(port, requests, rate, 1) as load:
                time.sleep(1)
                started = time.perf_counter()
                events = [{"user": user, "item": item} for user, item in new]
                number = call(port, "POST", "/events", {"events": events})["number"]
                row["acknowledged_s"] = time.perf_counter() - started
                while call(port, "GET", "/models")["models"][0]["log_position"] < number:
                    time.sleep(0.02)
                row["visible_s"] = time.perf_counter() - started
                time.sleep(1)
            row["updating"] = load.percentiles()
            with OpenLoad(port, requests, rate, 2) as load:
                time.sleep(1)
                started = time.perf_counter()
                receipt = call(port, "DELETE", "/users/17")
                row["forgotten_s"] = time.perf_counter() - started
                time.sleep(1)
            row |= {"forgetting": load.percentiles(), "residual": receipt["residual"]}
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    return row


class ChaosService:
    """A service whose processes are killed at random moments, and started again.

    Parameters
    ----------
    scratch
        A folder for the model and the log.
    n_workers
        How many workers the service has.
    rng
        Draws everything that is random.
    """

    def __init__(self, scratch: Path, n_workers: int, rng: random.Random) -> None:
        self.folder, self.log, self.n_workers, self.rng = scratch / "model", scratch / "log", n_workers, rng
        self.memory: dict[psutil.Process, list[int]] = defaultdict(list)
        self.growth: list[float] = []
        self.counts = {"kills": 0, "worker_kills": 0, "requests_sent_again": 0}

    def start(self) -> None:
        """Start the service."""
        self.growth += measure_growth(self.memory)
        self.memory.clear()
        self.process, self.port = start_server(self.folder, self.log, self.n_workers)
        self.next_kill = time.monotonic() + draw_lifetime(self.rng)

    def kill_in_time(self) -> None:
        """If it is time, kill one of the processes within the next moments, while requests are sent."""
        if time.monotonic() < self.next_kill:
            return
        victim = self.rng.choice([self.process, *self.process.children()])
        self.counts["kills" if victim is self.process else "worker_kills"] += 1
        self.next_kill = time.monotonic() + draw_lifetime(self.rng)
        threading.Timer(self.rng.uniform(0, 0.05), victim.kill).start()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> bool:
        """Send a request until it is answered; return whether the first attempt was. A dead service is started again."""
        for attempt in range(1_000):
            try:
                call(self.port, method, path, body)
            except (URLError, OSError, HTTPException) as error:
                status = error.code if isinstance(error, HTTPError) else None
                if status == 404 and method == "DELETE" and attempt:
                    return False  # forgotten by the attempt before
                if status not in (None, 503):
                    raise
                self.counts["requests_sent_again"] += 1
                with suppress(psutil.TimeoutExpired):
                    self.process.wait(0.1)
                    self.start()
                continue
            return attempt == 0
        raise RuntimeError("the service does not answer")

    def note_memory(self) -> None:
        """Note the memory of every process."""
        with suppress(psutil.NoSuchProcess):
            for member in [self.process, *self.process.children()]:
                self.memory[member].append(member.memory_info().rss)


class ChaosClient:
    """A client that sends random events, deletions and replacements, and knows which interactions the model must have.

    Parameters
    ----------
    service
        The service; its first model is made here.
    """

    def __init__(self, service: ChaosService) -> None:
        self.service, self.rng = service, service.rng
        events = clustered(400, 200, 6_000, n_tastes=5)
        CHAOS_RECIPE.fit(events).save(service.folder)
        rows = np.split(events.matrix.indices, events.matrix.indptr[1:-1])
        self.expected = {user: set(items.tolist()) for user, items in zip(events.users.tolist(), rows, strict=True)}
        self.counts = {"events": 0, "deletions": 0, "replacements": 0}

    def act(self) -> None:
        """Send events, or forget a user and now and then replace the model by a new fit of what it was saved with."""
        if self.rng.random() >= 0.1 or len(self.expected) <= 300:
            self.send_events()
        elif self.forget(self.rng.choice(sorted(self.expected))) and self.rng.random() < 0.2:
            self.replace_model()  # the deletion has saved everything, and no events are sent meanwhile

    def send_events(self) -> None:
        """Send random events of known and new users on known and new items, some requests twice."""
        sent = [(self.rng.randrange(600), self.rng.randrange(210)) for _ in range(self.rng.randint(1, 20))]
        body = {"events": [{"user": u, "item": i} for u, i in sent], "key": str(self.rng.random())}
        for _ in range(self.rng.choice([1, 1, 2])):  # a client that sends again what was acknowledged
            self.service.call("POST", "/events", body)
        for user, item in sent:
            self.expected.setdefault(user, set()).add(item)
        self.counts["events"] += len(sent)

    def forget(self, user: int) -> bool:
        """Forget a user; return whether the first request got the receipt."""
        has_receipt = self.service.call("DELETE", f"/users/{user}")
        del self.expected[user]
        self.counts["deletions"] += 1
        return has_receipt

    def replace_model(self) -> None:
        """Fit the model anew, as a nightly job does, save it over the served folder, and have it loaded."""
        saved = gr.load(self.service.folder)
        assert saved.histories is not None
        CHAOS_RECIPE.fit(saved.histories).save(self.service.folder)
        self.service.call("POST", "/reload")
        self.counts["replacements"] += 1

    def compare(self, model: gr.Recommender) -> dict[str, Any]:
        """Return whether a model has the expected interactions, and how far it is from a fit on them."""
        pairs = [(user, item) for user, items in self.expected.items() for item in items]
        wanted = gr.Interactions.of(pl.DataFrame({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}))
        assert model.histories is not None
        same = wanted.reindex(model.histories.users, model.histories.items)
        return {
            "same_interactions": same.fingerprint == model.histories.fingerprint and same.n_interactions == len(pairs),
            "largest_difference": float(np.abs(model.weights() - CHAOS_RECIPE.fit(same).weights()).max()),
        }


def run_chaos(seconds: float, seed: int, n_workers: int) -> dict[str, Any]:
    """Send random events, deletions and new models to a service that is killed now and then; compare the end with a refit.

    One service in ten lives for minutes, so that its memory can be watched. With workers, a kill hits one of the processes.
    """
    row: dict[str, Any] = {"what": "chaos", "seconds": seconds, "seed": seed, "workers": n_workers}
    with tempfile.TemporaryDirectory() as scratch:
        service = ChaosService(Path(scratch), n_workers, random.Random(seed))
        client = ChaosClient(service)
        service.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            service.kill_in_time()
            client.act()
            service.note_memory()
            time.sleep(PAUSE_SECONDS)
        service.process.kill()
        service.process.wait()
        service.start()
        client.forget(min(client.expected))  # applied after everything before it, and saves the model
        service.process.send_signal(signal.SIGINT)
        service.process.wait()
        row |= service.counts | client.counts | client.compare(gr.load(service.folder))
    return row | {"long_lives": len(service.growth), "largest_memory_growth": max(service.growth, default=None)}


def draw_lifetime(rng: random.Random) -> float:
    """Return the seconds until the next kill."""
    return rng.uniform(2, 10) if rng.random() < 0.9 else rng.uniform(100, 300)


def measure_growth(memory: dict[psutil.Process, list[int]]) -> list[float]:
    """Return by which factor the memory of each long-lived process grew from the second quarter of its life to the last."""
    long = [sizes for sizes in memory.values() if len(sizes) >= MIN_MEMORY_SAMPLES]
    return [float(np.median(sizes[-len(sizes) // 4 :]) / np.median(sizes[len(sizes) // 4 : len(sizes) // 2])) for sizes in long]


def main(
    n_users: int, n_items: int, rate: float, seconds: float, chaos: float, seed: int, n_workers: int, use_journal: bool
) -> None:
    row = run_chaos(chaos, seed, n_workers) if chaos else measure_updates(n_users, n_items, rate, seconds)
    print(json.dumps(row, indent=2))
    if use_journal:
        append("living", row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", dest="n_users", type=int, default=136_000)
    parser.add_argument("--items", dest="n_items", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=300.0, help="requests that are due in a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load before the update")
    parser.add_argument("--chaos", type=float, default=0.0, help="seconds of random events, deletions and kills, instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", dest="n_workers", type=int, default=1, help="processes of the service")
    parser.add_argument("--no-journal", dest="use_journal", action="store_false", help="add no row to results/living.jsonl")
    main(**vars(parser.parse_args()))
