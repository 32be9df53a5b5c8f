"""A tool server for assistants by the Model Context Protocol: recommend, explain and similar, from one saved model.

It speaks over standard input and output. The tools check their arguments as the HTTP service does, by the same schemas and
with the same limits, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from gramian.errors import GramianError
from gramian.service.schemas import (
    MAX_HISTORY_LENGTH,
    MAX_LIST_LENGTH,
    ExplainRequest,
    RecommendRequest,
    StrictId,
    WeightedItem,
)
from gramian.service.served_model import ServedModel

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

R = TypeVar("R")
User = Annotated[StrictId | None, Field(description="A user the model was fitted on")]
Items = Annotated[
    list[StrictId | WeightedItem], Field(max_length=MAX_HISTORY_LENGTH, description="Item ids, or ids with weights")
]
ItemId = Annotated[StrictId, Field(description="The id of an item; `find_items` finds it by its title")]
ListSize = Annotated[int, Field(ge=1, le=MAX_LIST_LENGTH, description="How many items to return")]
INSTRUCTIONS = "Recommends items of {name} to known users, or to anybody from a list of items. Find the ids of items first."


class ModelTools:
    """The tools of one model.

    Parameters
    ----------
    served
        The model.
    """

    def __init__(self, served: ServedModel) -> None:
        self.served = served

    def recommend(self, history: Items = [], user: User = None, k: ListSize = 10) -> dict[str, Any]:  # noqa: B006
        """Return the best items for a user of the model, for a list of items that somebody likes, or for both together."""
        return self.served.recommend(RecommendRequest.model_validate({"history": history, "user": user, "k": k}))

    def explain(self, item: ItemId, history: Items = [], user: User = None) -> dict[str, Any]:  # noqa: B006
        """Return how much each item of a history adds to the score of an item."""
        return self.served.explain(ExplainRequest.model_validate({"item": item, "history": history, "user": user}))

    def similar(self, item: ItemId, k: ListSize = 10) -> dict[str, Any]:
        """Return the items that are most similar to an item."""
        return self.served.similar(item, k)

    def find_items(
        self, query: Annotated[str, Field(max_length=200, description="Part of a title")], limit: ListSize = 10
    ) -> dict[str, Any]:
        """Return items whose title contains a text, with their ids."""
        return self.served.search(query, limit)

    def all(self) -> list[Callable[..., dict[str, Any]]]:
        """Return the tools."""
        return [self.recommend, self.explain, self.similar, self.find_items]


def create_mcp_server(served: ServedModel) -> MCPServer:
    """Return an MCP server with the tools of a model; `server.run()` speaks over standard input and output."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415

    server = MCPServer("gramian", instructions=INSTRUCTIONS.format(name=served.name))
    for tool in ModelTools(served).all():
        server.add_tool(with_readable_errors(tool, ToolError))
    return server


def with_readable_errors(tool: Callable[..., R], error_type: type[Exception]) -> Callable[..., R]:
    """Return a tool whose errors are sentences for the assistant. Others stay hidden: they may name files of this machine."""

    @wraps(tool)
    def call(*arguments: Any, **options: Any) -> R:
        try:
            return tool(*arguments, **options)
        except ValidationError as error:
            raise error_type(error.errors()[0]["msg"]) from None
        except GramianError as error:
            raise error_type(str(error)) from None

    return call
