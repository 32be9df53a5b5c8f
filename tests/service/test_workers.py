"""`gramian serve --workers`: real processes that answer from one copy of the models and swap it in step."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import psutil
import pytest
from starlette.requests import Request

import gramian as gr
from gramian.cli import serve
from gramian.core.receipts import verify_receipt
from gramian.errors import InvalidInput, NotSupported
from gramian.linalg.updated import UpdatedSymmetric
from gramian.models.scorers import InverseWeights
from gramian.service.middleware.access import Tokens
from gramian.service.served_model import ServedModel
from gramian.service.shared_models import find_shared_file, map_model, share_model
from gramian.service.shared_registry import SharedRegistry
from gramian.service.supervisor import Supervisor
from gramian.service.worker import WorkerSettings, forward_request
from service.helpers import TIMEOUT, expect_error, expect_ok, item_scores, wait_until

N_ASKED = 12  # connections, which the system spreads over two workers at random
K = 5


@pytest.fixture
def folder(texts, tmp_path):
    gr.EASE(l2=5).fit(texts).save(tmp_path / "ease")
    gr.Popularity().fit(texts).save(tmp_path / "popularity")
    return tmp_path / "ease"


class RunningService:
    """The command and its process."""

    def __init__(self, process, base):
        self.process, self.base = process, base

    def workers(self):
        """The processes that answer requests: the resource tracker of multiprocessing is none."""
        children = psutil.Process(self.process.pid).children()
        return {child for child in children if "resource_tracker" not in " ".join(child.cmdline())}

    def ask(self, method, path, **options):
        """Send one request over a connection of its own."""
        return httpx.request(method, self.base + path, timeout=TIMEOUT, **options)

    def recommend(self, user):
        """Ask several times, and expect one answer. A connection may reach a worker that has just died; it is sent again."""
        answers = []
        while len(answers) < N_ASKED:
            try:
                answers.append(self.ask("POST", "/recommend", json={"user": user, "k": K}))
            except httpx.TransportError:
                continue
        assert len({answer.text for answer in answers}) == 1
        return answers[0]


@contextmanager
def run_command(*words):
    """Run the command with two workers until the end of the block, and expect a graceful stop."""
    line = [sys.executable, "-c", "from gramian.cli.main import run; run()", "serve", *map(str, words)]
    with subprocess.Popen([*line, "--workers", "2", "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        printed = []
        for text in process.stderr:
            printed.append(text)
            if "Serving" in text:
                break
        assert "Serving" in printed[-1:][0], printed
        rest = threading.Thread(target=lambda: printed.extend(process.stderr))
        rest.start()
        try:
            yield RunningService(process, printed[-1].split()[-1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
            rest.join()
    assert "Traceback" not in "".join(printed), "".join(printed)


def count_mapped_files(process):
    """Count the files in memory that a process maps: one for the full matrix of an item-item model."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "/memfd:" in line})


def test_workers_serve_one_model_and_change_it_in_step(folder, texts, tmp_path):
    with run_command(folder, folder.parent / "popularity", "--log", tmp_path / "log") as service:
        before = gr.load(folder)
        assert [row["item"] for row in service.recommend("person-003").json()["items"]] == before.recommend(
            ["person-003"], k=K
        ).items[0]
        assert expect_ok(service.ask("GET", "/ready")) == {"status": "ready"}
        assert [model["name"] for model in expect_ok(service.ask("GET", "/models"))["models"]] == ["ease", "popularity"]
        expect_error(service.ask("POST", "/recommend", json={"model": "none", "user": "person-003"}), 404)

        events = [{"user": "somebody new", "item": "item-01"}, {"user": "person-003", "item": "a new item"}]
        number = service.ask("POST", "/events", json={"events": events}).json()["number"]
        wait_until(lambda: service.ask("GET", "/models").json()["models"][0]["log_position"] >= number)
        new = gr.Interactions.of(pl.DataFrame(events))
        refit = gr.EASE(l2=5).fit(texts.merge(new))
        for user in ("somebody new", "person-003"):
            answer = expect_ok(service.recommend(user))
            assert [row["item"] for row in answer["items"]] == refit.recommend([user], k=K).items[0]

        receipt = expect_ok(service.ask("DELETE", "/users/person-003"))
        expect_error(service.recommend("person-003"), 404)
        assert all(is_met for _, is_met in verify_receipt(receipt, folder, "person-003"))
        assert "person-003" not in (folder / "ids.json").read_text()

        gr.EASE(l2=500).fit(texts).save(folder)
        service.ask("POST", "/reload")  # the folder may have been noticed before
        assert expect_ok(service.ask("GET", "/models"))["models"][0]["recipe"]["params"]["l2"] == 500
        answer = expect_ok(service.recommend("person-003"))
        assert [row["item"] for row in answer["items"]] == gr.load(folder).recommend(["person-003"], k=K).items[0]

        assert len(service.workers()) == 2
        wait_until(lambda: all(count_mapped_files(worker) == 1 for worker in service.workers()))  # of the newest model alone

        metrics = service.ask("GET", "/metrics").text
        counts = re.findall(r'gramian_requests_total\{route="/recommend",status="\d+"\} (\d+)', metrics)
        assert sum(map(int, counts)) == 5 * N_ASKED + 1  # of all workers together
        assert 'gramian_pending_events{model="ease"} 0.0' in metrics
        assert 'gramian_requests_total{route="/events",status="202"} 1.0' in metrics  # counted once, though forwarded


def test_a_dead_worker_is_replaced_by_one_with_the_newest_model(folder, tmp_path):
    with run_command(folder, "--log", tmp_path / "log") as service:
        number = service.ask("POST", "/events", json={"events": [{"user": "late", "item": "item-01"}]}).json()["number"]
        wait_until(lambda: service.ask("GET", "/models").json()["models"][0]["log_position"] >= number)
        expected = item_scores(service.recommend("late").json())  # rounded otherwise once the update is subtracted
        for victim in service.workers():
            victim.kill()
            victim.wait()
        wait_until(lambda: len(service.workers()) == 2)
        assert item_scores(service.recommend("late").json()) == expected


def test_no_worker_outlives_the_main_process(folder):
    with run_command(folder) as service:
        workers = service.workers()
        assert len(workers) == 2
        service.process.kill()
        gone, alive = psutil.wait_procs(workers, TIMEOUT)
        assert (len(gone), alive) == (2, [])


def test_a_port_that_is_taken_is_told_so(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = [sys.executable, "-c", "from gramian.cli.main import run; run()", "serve", str(folder), "--workers", "2"]
        line += ["--port", str(taken.getsockname()[1])]
        done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 2
    assert "Choose another with --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_systems_are_refused(folder, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NotSupported, match="Linux"):
        serve.serve_command([folder], workers=2)


@pytest.mark.parametrize("name", ["edlae", "ease", "pca", "ials", "popularity"])
def test_a_shared_model_is_the_model(models, name):
    model, users = models[name], models[name].users[:20]
    shared, own = share_model(model)
    mapped = map_model(shared)
    shared.close()  # what is mapped stays
    for other in (own, mapped):
        assert other.recommend(users, k=K).items == model.recommend(users, k=K).items
        np.testing.assert_allclose(other.recommend(users, k=K).scores, model.recommend(users, k=K).scores, rtol=1e-5)
    assert mapped.catalog.titles == model.catalog.titles
    assert mapped.log_position == model.log_position
    assert mapped.histories.fingerprint == model.histories.fingerprint


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_a_response_that_is_cut_off_is_none(tmp_path, response):
    """As when the main process is killed at that moment."""

    async def forward():
        async def hang_up(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            writer.close()

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "raw_path": b"/models", "query_string": b"", "headers": []}
        async with await asyncio.start_unix_server(hang_up, tmp_path / "owner"):
            with pytest.raises(ConnectionError):
                await forward_request(Request(scope, receive), tmp_path / "owner")

    asyncio.run(forward())


def test_workers_that_cannot_start_stop_the_service(tmp_path):
    """None of them finds the main process."""
    address = ("127.0.0.1", 0)
    settings = WorkerSettings(tmp_path, address, socket.AF_INET, 1, 1, None, Tokens(), [], [], is_quiet=True)
    supervisor = Supervisor(settings, n_workers=1)
    with pytest.raises(InvalidInput, match="workers that start"):
        supervisor.run(lambda: pytest.fail("nobody listens"))
    supervisor.stop()


class FakeWorker(threading.Thread):
    """A worker that answers every message, after the first ones, with an error, or hangs up."""

    def __init__(self, registry, error=None, n_messages=None):
        super().__init__(daemon=True)
        ours, self.line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.error_of, self.n_messages, self.verbs = {"load": error, "serve": error, "release": error}, n_messages, []
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.line.send(str(self.process.pid).encode())
        self.start()
        registry._welcome(ours)

    def run(self):
        while self.n_messages is None or len(self.verbs) < self.n_messages:
            content, descriptors, _, _ = socket.recv_fds(self.line, 65_536, 2)
            if not content:
                break
            for descriptor in descriptors:
                os.close(descriptor)
            self.verbs.append(json.loads(content)["do"])
            if self.verbs[-1] != "start":
                is_new = "start" in self.verbs
                self.line.send(json.dumps({"error": self.error_of[self.verbs[-1]] if is_new else None}).encode())
        self.line.close()

    def stop(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def registry(folder):
    registry = SharedRegistry([folder])
    served = registry.models["ease"]
    registry.prepare(served)
    registry.publish(served)
    yield registry
    registry.close()


def test_a_model_that_one_worker_cannot_serve_replaces_none(registry):
    before = registry.models["ease"]
    fine, failing = FakeWorker(registry), FakeWorker(registry, error="out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        registry.prepare(ServedModel("ease", before.model))
    assert registry.models["ease"] is before
    assert list(registry.shared) == [before]
    for worker in (fine, failing):
        assert worker.verbs == ["load", "serve", "start", "load"]
        worker.stop()


def test_memory_that_a_worker_may_still_read_is_not_used_again(registry):
    first = registry.models["ease"]
    scorer = first.model.scorer
    deferring = first.model.with_scorer(scorer.with_inverse(UpdatedSymmetric.of(scorer.inverse)))
    second = ServedModel("ease", deferring)
    registry.prepare(second)
    file = find_shared_file(second.model)
    assert file is find_shared_file(first.model) is not None
    for served, is_released in ((first, False), (second, True)):
        registry._drop(served, is_released=is_released)
    assert file.is_read_elsewhere


def test_a_worker_that_does_not_answer_is_stopped(registry):
    silent, fine = FakeWorker(registry, n_messages=3), FakeWorker(registry)
    new = ServedModel("ease", registry.models["ease"].model)
    registry.prepare(new)
    registry.publish(new)
    assert registry.models["ease"] is new
    assert fine.verbs == ["load", "serve", "start", "load", "serve", "release"]
    assert silent.process.wait(TIMEOUT) == -signal.SIGKILL
    assert [channel.pid for channel in registry.channels] == [fine.process.pid]
    silent.stop()
    fine.stop()


def test_the_memory_of_a_model_that_a_worker_still_reads_is_not_used_again(registry):
    slow, memory = FakeWorker(registry), registry.memories["ease"]
    long_request = "a request that takes long reads the old model"
    for error, n_spare in ((None, 0), (long_request, 0), (None, 1)):  # the fixture refers to the first model
        current = registry.models["ease"].model
        copy = InverseWeights(current.scorer.inverse.copy(), current.scorer.factor, current.scorer.diagonal)
        new = ServedModel("ease", current.with_scorer(copy))
        del current
        registry.prepare(new)
        slow.error_of["release"] = error
        registry.publish(new)
        del new
        assert len(memory.spare) == n_spare
    slow.stop()


def test_a_worker_that_comes_between_the_two_steps_gets_the_new_model_too(registry):
    new = ServedModel("ease", registry.models["ease"].model)
    registry.prepare(new)
    late = FakeWorker(registry)
    registry.publish(new)
    assert late.verbs == ["load", "serve", "start", "load", "serve", "release"]
    late.stop()
