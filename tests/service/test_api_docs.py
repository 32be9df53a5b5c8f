"""The API description: a page without a network, and a schema that all responses keep to."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from service.helpers import expect_ok


def test_the_description_needs_no_network(client):
    page = client.get("/docs").text
    assert "POST /recommend/batch" in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "<script" not in page
    for path in expect_ok(client.get("/openapi.json"))["paths"]:
        assert path in page


OPERATIONS = [
    "POST /events",
    "DELETE /users/{user}",
    "POST /influence",
    "POST /explain/missing",
    "POST /history",
    "POST /recommend",
    "POST /recommend/batch",
    "GET /similar",
    "POST /explain",
    "GET /items",
    "GET /models",
]


OPERATIONS += ["GET /models/{name}", "GET /leaderboard", "POST /reload", "GET /health", "GET /ready", "GET /metrics"]


@pytest.fixture(scope="module")
def described(client):
    operations = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json").get_all_operations()
    return {operation.ok().label: operation.ok() for operation in operations}


def test_every_operation_is_tried(described):
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_asked_the_answer_is_as_described(operation, mode, described, client):
    """Requests that keep to the description and requests that do not, made by a program that has only read it."""
    if mode is GenerationMode.NEGATIVE and operation in OPERATIONS[-7:]:
        return  # there is nothing to be wrong about

    @given(described[operation].as_strategy(generation_mode=mode))
    @settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    def send_case(case):
        response = case.call()
        if response.status_code not in (413, 431):  # too large a body or URL is refused before it is looked at
            case.validate_response(response, excluded_checks=[schemathesis.checks.positive_data_acceptance])

    send_case()
