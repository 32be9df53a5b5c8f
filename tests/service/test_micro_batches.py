"""Requests for lists that wait for the same thread are answered in one call, with the bytes that each would have alone."""

import asyncio
import json
import threading

import pytest
from starlette.exceptions import HTTPException

from gramian.errors import UnknownId
from gramian.service import work_queue
from gramian.service.endpoints import Service
from gramian.service.metrics import Metrics
from gramian.service.model_registry import ModelRegistry
from gramian.service.served_model import ServedModel
from gramian.service.work_queue import MAX_TOGETHER, MicroBatcher, WorkQueue

HISTORIES = [[260], [260, 1196], [1], [], [593, 480, 10**9], [2028, 1, 260, 1198, 1210, 480, 593, 1196, 2571]]


class Answers:
    """Doubles numbers, and waits before it answers the first."""

    def __init__(self):
        self.calls, self.is_open = [], threading.Event()

    def __call__(self, numbers):
        self.calls.append(list(numbers))
        assert self.is_open.wait(30)
        return [ValueError(number) if number < 0 else 2 * number for number in numbers]


def run_requests(numbers, *, max_pending=100, while_waiting=lambda tasks: None):
    """Send the first number, and the others while it is answered; return all outcomes and the calls."""

    async def run():
        queue, answers = WorkQueue("test", max_pending, 1), Answers()
        batcher = MicroBatcher(queue, answers)
        tasks = [asyncio.create_task(batcher.run(numbers[0]))]
        while not answers.calls:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.run(number)) for number in numbers[1:]]
        await asyncio.sleep(0.01)
        while_waiting(tasks)
        await asyncio.sleep(0.3)
        answers.is_open.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert queue.n_pending == 0
        queue.close()
        return outcomes, answers.calls

    return asyncio.run(run())


def test_what_waits_is_answered_in_one_call():
    outcomes, calls = run_requests([1, 2, 3, 4])
    assert outcomes == [2, 4, 6, 8]
    assert calls == [[1], [2, 3, 4]]


def test_a_call_takes_no_more_than_its_limit():
    n = MAX_TOGETHER + 3
    _, calls = run_requests([0, *range(1, n + 1)])
    assert [len(call) for call in calls] == [1, MAX_TOGETHER, n - MAX_TOGETHER]


def test_each_request_has_its_own_error():
    outcomes, _ = run_requests([1, -2, 3])
    assert [type(outcome) for outcome in outcomes] == [int, ValueError, int]


def test_a_cancelled_request_is_not_answered():
    outcomes, calls = run_requests([1, 2, 3], while_waiting=lambda tasks: tasks[1].cancel())
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert calls == [[1], [3]]


def test_a_request_that_waits_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(work_queue, "MAX_WAIT", 0.1)
    outcomes, calls = run_requests([1, 2])
    assert outcomes[0] == 2
    assert isinstance(outcomes[1], HTTPException)
    assert calls == [[1]]


def test_a_full_queue_refuses():
    outcomes, _ = run_requests([1, 2, 3], max_pending=2)
    assert [type(outcome) for outcome in outcomes] == [int, int, HTTPException]


def test_a_call_that_fails_fails_its_requests():
    def fail(numbers):
        raise RuntimeError("broken")

    async def run():
        queue = WorkQueue("test", 10, 1)
        with pytest.raises(RuntimeError, match="broken"):
            await MicroBatcher(queue, fail).run(1)
        queue.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def service(folders):
    service = Service(ModelRegistry(folders), None, Metrics())
    for served in service.registry.models.values():
        service.registry.prepare(served)
    yield service
    for queue in (service.singles, service.batches, service.lookups, service.writes):
        queue.close()


@pytest.fixture
def sizes(monkeypatch):
    """How many lists each call of a model made."""
    made, recommend = [], ServedModel.recommend_together

    def record(self, requests):
        made.append(len(requests))
        return recommend(self, requests)

    monkeypatch.setattr(ServedModel, "recommend_together", record)
    return made


def encode(**request):
    return json.dumps(request).encode()


def answer_alone(service, bodies):
    return [service.answer_lists([body])[0] for body in bodies]


@pytest.mark.parametrize("name", ["edlae", "ease"])
def test_lists_have_the_same_bytes_as_alone(name, service, sizes):
    bodies = [encode(model=name, history=history) for history in HISTORIES]
    together = [response.body for response in service.answer_lists(bodies)]
    assert sizes == [len(bodies)]
    assert together == [response.body for response in answer_alone(service, bodies)]


@pytest.mark.parametrize("name", ["pca", "ials", "popularity"])
def test_models_whose_lists_would_depend_on_the_load_are_asked_one_by_one(name, service, sizes):
    bodies = [encode(model=name, history=history) for history in HISTORIES]
    responses = service.answer_lists(bodies)
    assert sizes == [1] * len(bodies)
    assert [response.status_code for response in responses] == [200] * len(bodies)


def test_requests_with_other_options_are_answered_apart(service, sizes):
    plain, short = encode(model="ease", history=[260]), encode(model="ease", history=[1], k=2)
    without, other = encode(model="ease", history=[260], deny=[1196]), encode(model="edlae", history=[260])
    reranked = encode(model="ease", history=[260], rerank=[{"name": "MMR"}])
    bodies = [plain, short, other, plain, without, reranked, short]
    together = [response.body for response in service.answer_lists(bodies)]
    assert sorted(sizes) == [1, 1, 1, 2, 2]
    assert together == [response.body for response in answer_alone(service, bodies)]


def test_a_wrong_request_does_not_spoil_the_others(service):
    good = encode(model="ease", history=[260])
    bodies = [good, encode(model="ease", user="nobody"), b"no json", encode(model="none"), good]
    outcomes = service.answer_lists(bodies)
    assert [outcomes[0].body, outcomes[4].body] == [service.answer_lists([good])[0].body] * 2
    assert isinstance(outcomes[1], UnknownId)
    assert all(isinstance(outcome, Exception) for outcome in outcomes[1:4])


def test_every_list_is_counted_once(service):
    def count():
        return service.metrics.render().decode().partition('gramian_lists_total{model="ease"} ')[2].partition("\n")[0]

    before = float(count() or 0)
    service.answer_lists([encode(model="ease", history=[260]), encode(model="ease", history=[1]), b"no json"])
    assert float(count()) == before + 2
