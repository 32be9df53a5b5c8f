"""`gramian verify`: check a receipt for forgetting against a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.cli.options import AsJson, SavedModelFolder
from gramian.cli.render import print_json, print_text
from gramian.core.receipts import read_receipt, verify_receipt
from gramian.core.recommender import Recommender, load_model
from gramian.errors import InvalidInput
from gramian.io.ids import ID_CODECS


def verify_command(
    receipt: Annotated[Path, typer.Argument(help="The receipt that DELETE /users/{id} returned, as a file.")],
    model: SavedModelFolder,
    *,
    user: Annotated[str | None, typer.Option(help="The id that the receipt should be of.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a receipt for forgetting: that the users are not in the model, and that it equals a fit without them."""
    content = read_receipt(receipt)
    checks = verify_receipt(content, model, None if user is None else parse_id(user, load_model(model)))
    if as_json:
        print_json(
            {"valid": all(holds for _, holds in checks), "checks": [{"check": c, "holds": holds} for c, holds in checks]}
        )
    else:
        for check, holds in checks:
            print_text(f"{'yes' if holds else 'NO '}  {check}")
    if not all(holds for _, holds in checks):
        raise typer.Exit(1)


def parse_id(text: str, model: Recommender) -> Any:
    """Return an id in the type of the model's users, also if it is of none of them."""
    known = type(model.users[0]).__name__ if model.users else "str"
    read = {"int": int, "float": float}.get(known, ID_CODECS[known][1])
    try:
        return read(text)
    except (ValueError, ArithmeticError):
        raise InvalidInput(f"--user of type {known}, as the model has them", repr(text), "Check the id") from None
