"""The living model: how soon events and deletions are in the answers under a steady load, and a service that is killed often.

    python benchmarks/living.py --items 2000 --users 10000 --rate 100     # a quick look; the defaults are the issue's sizes
    python benchmarks/living.py --workers 2                               # the same with two workers
    python benchmarks/living.py --rates --seconds 5                       # requests a second at p99 < 10 ms, and skrecsys'
    python benchmarks/living.py --rates --before ../older-checkout/src    # also of an older version that reads the same model
    python benchmarks/living.py --micro-batching                          # what scoring several requests at once would save
    python benchmarks/living.py --chaos 60 --workers 2                    # events, deletions, new models and kills for a minute
    python benchmarks/living.py --chaos 900 --workers 2 --no-kills        # the same without kills: does the memory grow?

The load is open-loop: requests are due at times that were drawn before, and a latency counts from when its request was due, not
from when it could be sent. A server that stalls therefore shows in the percentiles (no coordinated omission). Client and
server share the machine.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import defaultdict, deque
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import polars as pl
import psutil
from journal import append
from numba import set_num_threads
from peers import python_of
from serve import SCRATCH, SERVE, draw_histories, encode_request, fit_model
from uvloop import new_event_loop

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.service.endpoints import encode_json
from gramian.service.schemas import BatchRequest, RecommendRequest
from gramian.service.served_model import ServedModel

N_NEW_USERS, EVENTS_PER_NEW_USER = 100, 20
N_CONNECTIONS = 32  # the system spreads them over the workers at random
START_SECONDS = 300.0
MAX_P99_MS = 10.0
CPU_RATE = 100.0  # requests a second while processor time is measured: low enough for a busy machine
CHAOS_RECIPE = gr.EASE(l2=20)
PAUSE_SECONDS = 0.05  # between two actions of the chaos client, so that an hour of it leaves the machine to others
MIN_MEMORY_SAMPLES = 400  # of a process whose memory is judged: it lived for about a minute or longer


def call(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a request and return its JSON."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", content, headers, method=method), timeout=300) as response:
        return dict(json.load(response))


def gramian_command(folder: Path, n_workers: int) -> list[str]:
    """Return the command that serves a model."""
    return [*SERVE, str(folder), "--quiet", "--workers", str(n_workers)]


def start_server(folder: Path, log: Path, n_workers: int) -> tuple[psutil.Popen, int]:
    """Start `gramian serve` with a log, and return it with its port once it is ready."""
    return start_process([*gramian_command(folder, n_workers), "--log", str(log)])


def start_process(command: list[str]) -> tuple[psutil.Popen, int]:
    """Start a server, and return it with its port once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = psutil.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            call(port, "GET", "/ready")
            return process, port
        except (URLError, ConnectionError, OSError):
            time.sleep(0.05)
    process.kill()
    raise RuntimeError(f"not ready within {START_SECONDS:g} s")


class OpenLoad:
    """Requests that are due at given times, sent over a few connections by a thread; a context during which they are sent.

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
        self.rng, self.is_over = np.random.default_rng(seed), threading.Event()
        self.latencies: list[float] = []
        self.waiting: deque[tuple[float, bytes]] = deque()  # requests that are due, while all connections are busy
        self.idle: deque[LoadConnection] = deque()  # used in turn, so that the server closes none for being idle
        self.thread = threading.Thread(target=lambda: new_event_loop().run_until_complete(self._run()))

    def __enter__(self) -> "OpenLoad":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(N_CONNECTIONS):
            await loop.create_connection(lambda: LoadConnection(self), "127.0.0.1", self.port)
        due, number = time.perf_counter(), 0
        while not self.is_over.is_set():
            due, number = due + self.rng.exponential(1 / self.rate), number + 1
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            self.waiting.append((due, self.requests[number % len(self.requests)]))
            if self.idle:
                self.idle.popleft().send_next()
        while len(self.idle) < N_CONNECTIONS:
            await asyncio.sleep(0.01)
        for connection in self.idle:
            connection.transport.close()

    def percentiles(self) -> dict[str, float]:
        """Return the median, the 99th percentile and the maximum in milliseconds, and how many requests were sent."""
        p50, p99, highest = np.quantile(self.latencies, [0.5, 0.99, 1]) * 1e3
        return {"p50_ms": p50, "p99_ms": p99, "max_ms": highest, "requests": len(self.latencies)}


class LoadConnection(asyncio.Protocol):
    """A connection that sends the next request that is due once it has the response to the last.

    Parameters
    ----------
    load
        The load that it is part of.
    """

    def __init__(self, load: OpenLoad) -> None:
        self.load, self.received, self.due = load, b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.load.idle.append(self)

    def send_next(self) -> None:
        """Send the oldest request that is due, or wait for one."""
        if not self.load.waiting:
            self.load.idle.append(self)
            return
        self.due, request = self.load.waiting.popleft()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self.received
        self.load.latencies.append(time.perf_counter() - self.due)
        self.received = b""
        self.send_next()


def measure_updates(n_users: int, n_items: int, rate: float, seconds: float, n_workers: int, n_rounds: int) -> dict[str, Any]:
    """Return latencies without and with updates, and the seconds until an update is visible and a user is forgotten.

    Both are done several times, since the first of each allocates memory that later ones reuse.
    """
    model = fit_model(SCRATCH / f"served-{n_users}-{n_items}", n_users, n_items)
    histories = draw_histories(model, N_NEW_USERS * n_rounds)
    requests = [encode_request("/recommend", {"history": items, "k": 10}) for items in histories]
    row: dict[str, Any] = {"what": "updates", "users": n_users, "items": n_items, "rate": rate, "workers": n_workers}
    row |= {"acknowledged_s": [], "visible_s": [], "forgotten_s": [], "residual": []}
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        folder = Path(scratch) / "model"
        model.save(folder)
        process, port = start_server(folder, Path(scratch) / "log", n_workers)
        try:
            with OpenLoad(port, requests, rate) as load:
                time.sleep(seconds)
            row |= {"idle": load.percentiles(), "megabytes": measure_memory(process)}
            with OpenLoad(port, requests, rate, 1) as load:
                for number in range(n_rounds):
                    time.sleep(1)
                    added = range(number * N_NEW_USERS, (number + 1) * N_NEW_USERS)
                    new = [(n_users + i, item) for i in added for item in histories[i][:EVENTS_PER_NEW_USER]]
                    acknowledged, visible = time_update(port, new)
                    row["acknowledged_s"].append(acknowledged)
                    row["visible_s"].append(visible)
                time.sleep(1)
            row["updating"] = load.percentiles()
            with OpenLoad(port, requests, rate, 2) as load:
                for number in range(n_rounds):
                    time.sleep(1)
                    started = time.perf_counter()
                    receipt = call(port, "DELETE", f"/users/{number}")
                    row["forgotten_s"].append(time.perf_counter() - started)
                    row["residual"].append(receipt["residual"])
                time.sleep(1)
            row["forgetting"] = load.percentiles()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    return row


def measure_memory(process: psutil.Process) -> float:
    """Return the megabytes of a process and its children, each shared page counted once (proportional set size)."""
    return float(sum(member.memory_full_info().pss for member in [process, *process.children(recursive=True)]) / 1e6)


def measure_cpu(process: psutil.Process, port: int, requests: list[bytes]) -> float:
    """Return the milliseconds of processor time of a request to a server, which others on the machine change little."""

    def read_seconds() -> float:
        times = [member.cpu_times() for member in [process, *process.children(recursive=True)]]
        return sum(member.user + member.system for member in times)

    with OpenLoad(port, requests, CPU_RATE):
        time.sleep(10)  # after it is ready, a server still loads kernels that few requests need
    started = read_seconds()
    with OpenLoad(port, requests, CPU_RATE) as load:
        time.sleep(10)
    return (read_seconds() - started) / len(load.latencies) * 1e3


def time_update(port: int, events: list[tuple[int, int]]) -> tuple[float, float]:
    """Send events of new users; return the seconds until they are acknowledged, and until the last user is answered."""
    started = time.perf_counter()
    call(port, "POST", "/events", {"events": [{"user": user, "item": item} for user, item in events]})
    acknowledged = time.perf_counter() - started
    while True:
        try:
            call(port, "POST", "/recommend", {"user": events[-1][0], "k": 10})
            return acknowledged, time.perf_counter() - started
        except HTTPError:  # 404: not known yet
            time.sleep(0.02)


def measure_rates(n_users: int, n_items: int, seconds: float, before: Path | None) -> dict[str, Any]:
    """Return the highest rate of single requests at a low p99, of one process, two workers, an older version and skrecsys."""
    folder = SCRATCH / f"served-{n_users}-{n_items}"
    model = fit_model(folder, n_users, n_items)
    users = np.random.default_rng(0).integers(0, n_users, 1_000).tolist()
    requests = [encode_request("/recommend", {"user": user, "k": 10}) for user in users]
    row: dict[str, Any] = {"what": "rates", "users": n_users, "items": n_items, "max_p99_ms": MAX_P99_MS}
    servers = {"gramian": gramian_command(folder, 1), "gramian, 2 workers": gramian_command(folder, 2)}
    if before is not None:
        servers["gramian, before"] = ["env", f"PYTHONPATH={before.resolve()}", *SERVE, str(folder), "--quiet"]
    python, data = python_of("skrecsys"), export_for_skrecsys(model)
    script = str(Path(__file__).parent / "peers" / "serve_skrecsys.py")
    servers |= {"skrecsys": [python, script, data, "1"], "skrecsys, 2 workers": [python, script, data, "2"]}
    for name, command in servers.items():
        try:
            process, port = start_process(command)
        except RuntimeError as error:
            row[name] = {"failed": str(error)}
            continue
        try:
            row[name] = {"cpu_ms": measure_cpu(process, port, requests), "megabytes": measure_memory(process)}
            row[name] |= find_highest_rate(port, requests, seconds)
            print(name, json.dumps(row[name]), flush=True)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    return row


def find_highest_rate(port: int, requests: list[bytes], seconds: float) -> dict[str, Any]:
    """Raise the rate by 15 % as long as one of two tries has a low p99. Return the highest such rate, and all that was seen."""
    rate, seen = 300.0, []
    with OpenLoad(port, requests, rate):
        time.sleep(2)  # warm up
    while True:
        for seed in range(2):
            with OpenLoad(port, requests, rate, seed) as load:
                time.sleep(seconds)
            seen.append({"rate": rate} | load.percentiles())
            if seen[-1]["p99_ms"] < MAX_P99_MS:
                break
        else:
            good = [entry for entry in seen if entry["p99_ms"] < MAX_P99_MS]
            return {"highest": max((entry["rate"] for entry in good), default=None), "seen": seen}
        rate = round(rate * 1.15)


def export_for_skrecsys(model: gr.Recommender) -> str:
    """Write weights and interactions in the types that skrecsys reads without a copy; return the folder."""
    assert model.histories is not None
    matrix, folder = model.histories.matrix, SCRATCH / f"skrecsys-{model.histories.n_users}-{len(model.items)}"
    if not folder.exists():
        folder.mkdir(parents=True)
        np.save(folder / "indptr.npy", matrix.indptr.astype(np.int64))
        np.save(folder / "indices.npy", matrix.indices.astype(np.int64))
        np.save(folder / "weights.npy", model.weights().astype(np.float64))
    return str(folder)


def measure_micro_batching(n_users: int, n_items: int) -> dict[str, Any]:
    """Return the processor time of a list, when requests are answered one by one and when several are scored at once.

    Micro-batching of concurrent requests can save at most the difference. Both run on one thread, as in the service, and
    include all that a request needs but HTTP: it is still parsed and answered alone.
    """
    set_num_threads(1)
    model = fit_model(SCRATCH / f"served-{n_users}-{n_items}", n_users, n_items)
    served = ServedModel("model", model)
    served.expand_weights()
    histories = draw_histories(model, 256)
    row: dict[str, Any] = {"what": "micro-batching", "users": n_users, "items": n_items, "ms_of_a_list": {}}

    def answer_each() -> None:
        for items in histories:
            encode_json(served.recommend(RecommendRequest.model_validate({"history": items, "k": 10})))

    def answer_together(size: int) -> None:
        for start in range(0, len(histories), size):
            sent = [RecommendRequest.model_validate({"history": items, "k": 10}) for items in histories[start : start + size]]
            together = BatchRequest.model_construct(histories=[request.history for request in sent], k=10)
            for lists in served.recommend_batch(together):
                for ranked in lists:
                    encode_json({"model": served.name, **ranked})

    ways = {"one by one": answer_each} | {str(size): partial(answer_together, size) for size in (2, 4, 8, 16, 32)}
    for name, answer in ways.items():
        answer()  # loads kernels
        seconds = []
        for _ in range(5):
            started = time.process_time()
            answer()
            seconds.append(time.process_time() - started)
        row["ms_of_a_list"][name] = min(seconds) / len(histories) * 1e3
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
    kills
        Whether processes are killed.
    """

    def __init__(self, scratch: Path, n_workers: int, rng: random.Random, kills: bool) -> None:
        self.folder, self.log, self.n_workers, self.rng = scratch / "model", scratch / "log", n_workers, rng
        self.kills = kills
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
        if not self.kills or time.monotonic() < self.next_kill:
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
        """Note the memory of every process that is alive."""
        with suppress(psutil.NoSuchProcess):
            for member in [self.process, *self.process.children()]:
                if n_bytes := member.memory_info().rss:  # 0 of one that was killed just now
                    self.memory[member].append(n_bytes)


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


def run_chaos(seconds: float, seed: int, n_workers: int, kills: bool) -> dict[str, Any]:
    """Send random events, deletions and new models to a service that is killed now and then; compare the end with a refit.

    One service in ten lives for minutes, so that its memory can be watched. With workers, a kill hits one of the processes.
    """
    row: dict[str, Any] = {"what": "chaos", "seconds": seconds, "seed": seed, "workers": n_workers}
    with tempfile.TemporaryDirectory() as scratch:
        service = ChaosService(Path(scratch), n_workers, random.Random(seed), kills)
        client = ChaosClient(service)
        service.start()
        try:
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
        finally:
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
    n_users: int,
    n_items: int,
    rate: float,
    seconds: float,
    chaos: float,
    kills: bool,
    measures_rates: bool,
    before: Path | None,
    measures_batching: bool,
    seed: int,
    n_workers: int,
    n_rounds: int,
    use_journal: bool,
) -> None:
    if chaos:
        row = run_chaos(chaos, seed, n_workers, kills)
    elif measures_batching:
        row = measure_micro_batching(n_users, n_items)
    elif measures_rates:
        row = measure_rates(n_users, n_items, seconds, before)
    else:
        row = measure_updates(n_users, n_items, rate, seconds, n_workers, n_rounds)
    row |= {"load_average": os.getloadavg()[0]}  # others may use the machine, which the figures do not show
    print(json.dumps(row, indent=2))
    if use_journal:
        append("living", row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", dest="n_users", type=int, default=136_000)
    parser.add_argument("--items", dest="n_items", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=300.0, help="requests that are due in a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load before the update, or at each rate")
    parser.add_argument("--chaos", type=float, default=0.0, help="seconds of random events, deletions and kills, instead")
    parser.add_argument("--no-kills", dest="kills", action="store_false", help="with --chaos: every process lives to the end")
    parser.add_argument(
        "--rates", dest="measures_rates", action="store_true", help="the highest rates at a low p99, beside skrecsys, instead"
    )
    parser.add_argument(
        "--before", type=Path, metavar="SRC", help="with --rates: the src folder of an older checkout, compared too"
    )
    parser.add_argument(
        "--micro-batching", dest="measures_batching", action="store_true", help="what scoring requests together saves, instead"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", dest="n_workers", type=int, default=1, help="processes of the service")
    parser.add_argument("--rounds", dest="n_rounds", type=int, default=5, help="of updates, and of deletions")
    parser.add_argument("--no-journal", dest="use_journal", action="store_false", help="add no row to results/living.jsonl")
    main(**vars(parser.parse_args()))
