"""The tools for assistants: the answers and limits of the HTTP service."""

import asyncio
import inspect

import pytest

from gramian.service.mcp_server import ModelTools, create_mcp_server, with_readable_errors
from gramian.service.served_model import ServedModel


@pytest.fixture(scope="module")
def tools(models):
    return ModelTools(ServedModel("edlae", models["edlae"]))


def test_tools_answer_as_the_model_does(tools, models):
    model = models["edlae"]
    first, second = model.items[:2]
    expected = model.recommend_for([[first, second]], k=3)
    assert [row["item"] for row in tools.recommend([first, second], k=3)["items"]] == expected.items[0]
    assert [row["item"] for row in tools.similar(first, k=3)["items"]] == model.similar_items(first, k=3).items[0]
    assert tools.explain(second, [first])["score"] == pytest.approx(model.explain([first], second).score)
    assert tools.find_items("Amélie")["items"][0]["item"] == 1
    assert tools.recommend(user=model.users[0])["items"]


def test_errors_are_sentences_for_the_assistant(tools):
    class ToolError(Exception):
        pass

    recommend, similar = (with_readable_errors(tool, ToolError) for tool in (tools.recommend, tools.similar))
    with pytest.raises(ToolError, match="less than or equal to 500"):
        recommend([1], k=501)
    with pytest.raises(ToolError, match="at most 2000 items"):
        recommend([1] * 2001)
    with pytest.raises(ToolError, match="expected an item"):
        similar(-1)
    assert inspect.signature(recommend) == inspect.signature(tools.recommend)


def test_the_server_lists_and_calls_the_tools(models):
    server = create_mcp_server(ServedModel("edlae", models["edlae"]))
    names = {tool.name for tool in asyncio.run(server.list_tools())}
    assert names == {"recommend", "explain", "similar", "find_items"}
    result = asyncio.run(server.call_tool("similar", {"item": models["edlae"].items[0], "k": 2}))
    assert len(result.structured_content["items"]) == 2
    with pytest.raises(Exception, match="expected an item"):
        asyncio.run(server.call_tool("similar", {"item": -1}))
