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
from gramian.service.schemas import RecommendRequest
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
        yield from enumerate(ValueError(number) if number < 0 else 2 * number for number in numbers)


async def wait_for(condition):
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited too long")


@pytest.fixture
def run_requests(monkeypatch):
    """Send the first number, and the others while it is answered; return all outcomes and the calls."""

    def run_all(numbers, *, max_pending=100, max_wait=work_queue.MAX_WAIT, while_waiting=lambda tasks: None):
        return asyncio.run(run(numbers, max_pending, max_wait, while_waiting))

    async def run(numbers, max_pending, max_wait, while_waiting):
        queue, answers = WorkQueue("test", max_pending, 1), Answers()
        batcher = MicroBatcher(queue, answers)
        tasks = [asyncio.create_task(batcher.run(numbers[0]))]
        await wait_for(lambda: answers.calls)
        monkeypatch.setattr(work_queue, "MAX_WAIT", max_wait)
        tasks += [asyncio.create_task(batcher.run(number)) for number in numbers[1:]]
        await asyncio.sleep(0.01)
        while_waiting(tasks)
        await asyncio.sleep(0.3)
        answers.is_open.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert queue.n_pending == 0
        queue.close()
        return outcomes, answers.calls

    return run_all


def test_what_waits_is_answered_in_one_call(run_requests):
    outcomes, calls = run_requests([1, 2, 3, 4])
    assert outcomes == [2, 4, 6, 8]
    assert calls == [[1], [2, 3, 4]]


def test_a_call_takes_no_more_than_its_limit(run_requests):
    n = MAX_TOGETHER + 3
    _, calls = run_requests([0, *range(1, n + 1)])
    assert [len(call) for call in calls] == [1, MAX_TOGETHER, n - MAX_TOGETHER]


def test_each_request_has_its_own_error(run_requests):
    outcomes, _ = run_requests([1, -2, 3])
    assert [type(outcome) for outcome in outcomes] == [int, ValueError, int]


def test_a_cancelled_request_is_not_answered(run_requests):
    outcomes, calls = run_requests([1, 2, 3], while_waiting=lambda tasks: tasks[1].cancel())
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert calls == [[1], [3]]


def test_a_request_that_waits_too_long_is_refused(run_requests):
    outcomes, calls = run_requests([1, 2], max_wait=0.1)
    assert outcomes[0] == 2
    assert isinstance(outcomes[1], HTTPException)
    assert calls == [[1]]


def test_a_full_queue_refuses(run_requests):
    outcomes, _ = run_requests([1, 2, 3], max_pending=2)
    assert [type(outcome) for outcome in outcomes] == [int, int, HTTPException]


def test_a_call_that_fails_fails_its_requests():
    is_open = threading.Event()

    def fail(numbers):
        assert is_open.wait(30)
        yield 0, "answered"
        raise RuntimeError("broken")

    async def run():
        queue = WorkQueue("test", 10, 1)
        batcher = MicroBatcher(queue, fail)
        tasks = [asyncio.create_task(batcher.run(number)) for number in range(3)]  # the first may be alone
        await wait_for(lambda: queue.n_pending == 3)
        is_open.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        queue.close()
        return outcomes

    outcomes = asyncio.run(run())
    assert outcomes[0] == "answered"
    assert {str(outcome) for outcome in outcomes} == {"answered", "broken"}


def test_an_outcome_is_sent_before_the_others_are_there():
    is_open = threading.Event()

    def answer(numbers):
        for number in range(len(numbers)):
            yield number, "answered"
            assert is_open.wait(30)

    async def run():
        queue = WorkQueue("test", 10, 1)
        assert await asyncio.wait_for(MicroBatcher(queue, answer).run(1), 30) == "answered"
        is_open.set()
        queue.close()

    asyncio.run(run())


def test_what_waits_is_cancelled_at_the_end():
    async def run():
        queue, answers = WorkQueue("test", 10, 1), Answers()
        batcher = MicroBatcher(queue, answers)
        first, second = asyncio.create_task(batcher.run(1)), None
        await wait_for(lambda: answers.calls)
        second = asyncio.create_task(batcher.run(2))
        await wait_for(lambda: batcher.waiting)
        batcher.close()
        with pytest.raises(HTTPException):
            await asyncio.wait_for(second, 5)
        answers.is_open.set()
        assert await first == 2
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


def answer(service, bodies):
    """Return the outcomes in the order of the requests."""
    outcomes = dict(service.answer_lists(bodies))
    return [outcomes.pop(number) for number in range(len(bodies))]


def answer_alone(service, bodies):
    return [answer(service, [body])[0] for body in bodies]


@pytest.mark.parametrize("name", ["edlae", "ease"])
def test_lists_have_the_same_bytes_as_alone(name, service, sizes):
    bodies = [encode(model=name, history=history) for history in HISTORIES]
    together = [response.body for response in answer(service, bodies)]
    assert sizes == [len(bodies)]
    assert together == [response.body for response in answer_alone(service, bodies)]


def test_users_share_a_call_with_histories(service, sizes):
    first, second = service.registry["ease"].model.users[:2]
    bodies = [encode(model="ease", **request) for request in ({"user": first}, {"history": [260]}, {"user": second})]
    bodies.append(encode(model="ease", user=second, history=[260]))
    together = [response.body for response in answer(service, bodies)]
    assert sizes == [len(bodies)]
    assert together == [response.body for response in answer_alone(service, bodies)]


def test_a_user_alone_has_the_list_of_their_history(service):
    for name, served in service.registry.models.items():
        user = served.model.users[3]
        known = [{"item": item, "weight": weight} for item, weight in served.model.history(user).items()]
        lists = [served.recommend(RecommendRequest(**request)) for request in ({"user": user}, {"history": known})]
        assert lists[0]["items"] == lists[1]["items"], name
        assert lists[0]["unknown"] == []


@pytest.mark.parametrize("name", ["pca", "ials", "popularity"])
def test_models_whose_lists_would_depend_on_the_load_are_asked_one_by_one(name, service, sizes):
    bodies = [encode(model=name, history=history) for history in HISTORIES]
    responses = answer(service, bodies)
    assert sizes == [1] * len(bodies)
    assert [response.status_code for response in responses] == [200] * len(bodies)


def test_requests_with_other_options_are_answered_apart(service, sizes):
    plain, short = encode(model="ease", history=[260]), encode(model="ease", history=[1], k=2)
    without, other = encode(model="ease", history=[260], deny=[1196]), encode(model="edlae", history=[260])
    reranked = encode(model="ease", history=[260], rerank=[{"name": "MMR"}])
    bodies = [plain, short, other, plain, without, reranked, short]
    together = [response.body for response in answer(service, bodies)]
    assert sorted(sizes) == [1, 1, 1, 2, 2]
    assert together == [response.body for response in answer_alone(service, bodies)]


def test_a_wrong_request_does_not_spoil_the_others(service):
    good = encode(model="ease", history=[260])
    bodies = [good, encode(model="ease", user="nobody"), b"no json", encode(model="none"), good]
    outcomes = answer(service, bodies)
    assert [outcomes[0].body, outcomes[4].body] == [answer(service, [good])[0].body] * 2
    assert isinstance(outcomes[1], UnknownId)
    assert all(isinstance(outcome, Exception) for outcome in outcomes[1:4])


def test_every_list_is_counted_once(service):
    def count():
        return service.metrics.render().decode().partition('gramian_lists_total{model="ease"} ')[2].partition("\n")[0]

    before = float(count() or 0)
    answer(service, [encode(model="ease", history=[260]), encode(model="ease", history=[1]), b"no json"])
    assert float(count()) == before + 2
