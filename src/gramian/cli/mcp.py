"""`gramian mcp`: a model as tools for assistants."""

from __future__ import annotations

from gramian.cli.options import SavedModelFolder
from gramian.core.recommender import load_model
from gramian.errors import NotSupported
from gramian.service.served_model import ServedModel
from gramian.validation import format_install_advice


def mcp_command(model: SavedModelFolder) -> None:
    """Answer recommend, explain and similar for assistants, by the Model Context Protocol over standard input and output."""
    try:
        from gramian.service.mcp_server import create_mcp_server  # noqa: PLC0415

        served = ServedModel(model.resolve().name, load_model(model, private=True))
        server = create_mcp_server(served)
    except ModuleNotFoundError as error:
        raise NotSupported("the MCP SDK, version 2", f"no {error.name}", format_install_advice("mcp")) from None
    served.expand_weights()
    served.warm_up()
    server.run()
