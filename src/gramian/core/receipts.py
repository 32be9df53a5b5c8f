"""Receipts for forgetting: what was removed from a saved model, in a form that can be checked without the service.

A receipt has no user ids, only salted hashes of them: whoever knows an id can check that it was removed, and the receipt alone
does not tell who it was. It names the model before and after by hashes of what it is a function of: the recipe, the users and
their interactions. So it holds for a folder without fitted arrays, which is all that is written before the receipt of a large
model is sent, and for the complete folder that follows. The residual says how far the updated model is from a new fit: the
largest entry of |P(Av) − v| for random v, where A is the matrix of the remaining interactions and P its inverse in the model. A
fit must meet the same bound.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.recommender import Recommender, load_model
from gramian.core.updates import SupportsVerification
from gramian.errors import DamagedFile, InvalidInput, NotSupported
from gramian.io.ids import encode_ids
from gramian.io.regular_file import open_regular_file, read_at_most
from gramian.linalg.inverse import TOLERANCE

RECEIPT_FORMAT = 1
MAX_RECEIPT_BYTES = 1 << 20
FIELDS = {
    "format": int, "salt": str, "users": list, "interactions": int, "recipe": dict, "before": str, "after": str,
    "histories": str, "residual": float, "bound": float, "time": str, "seconds": float,
}  # fmt: skip


def hash_user(user: Any, salt: str) -> str:
    """Return a salted hash of a user id."""
    return sha256(f"{salt} {json.dumps(encode_ids([user]), sort_keys=True)}".encode()).hexdigest()


def hash_model(model: Recommender) -> str:
    """Return a hash of what determines a model: its recipe, its users and items, and their interactions."""
    fingerprint = "" if model.histories is None else model.histories.fingerprint
    return sha256(json.dumps([model.recipe.to_json(), fingerprint], sort_keys=True).encode()).hexdigest()


def measure_model_residual(model: Recommender) -> tuple[float, float]:
    """Return how far a model is from a new fit on its histories, and the bound that a fit must meet."""
    recipe, histories = model.recipe, model.histories
    if not isinstance(recipe, SupportsVerification) or histories is None:
        raise NotSupported("a full-rank autoencoder or Popularity with its histories", type(recipe).__name__, "Fit it again")
    return recipe.residual(model.scorer, histories), TOLERANCE[np.dtype(np.float32)]


def make_receipt(
    before: Recommender, after: Recommender, users: Iterable[Any], started: datetime, save: Callable[[], None]
) -> dict[str, Any]:
    """Save a model without some users, and return the receipt for it.

    Parameters
    ----------
    before, after
        The model that had them, and the one without them.
    users
        Their ids.
    started
        When the deletion was asked for.
    save
        Saves the model without them, in a thread, while hashes and residual are computed.
    """
    forgotten, salt = list(users), secrets.token_hex(16)
    with ThreadPoolExecutor(1) as background:
        saving = background.submit(save)
        residual, bound = measure_model_residual(after)
        hashes = hash_model(before), hash_model(after)
        saving.result()
    histories = before.histories
    rows = np.empty(0, np.int64) if histories is None else histories.users.positions(forgotten)
    removed = 0 if histories is None else int(np.diff(histories.matrix.indptr)[rows[rows >= 0]].sum())
    return {
        "format": RECEIPT_FORMAT,
        "salt": salt,
        "users": [hash_user(user, salt) for user in forgotten],
        "interactions": removed,
        "recipe": after.recipe.to_json(),
        "before": hashes[0],
        "after": hashes[1],
        "histories": after.histories.fingerprint if after.histories is not None else "",
        "residual": residual,
        "bound": bound,
        "time": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
    }


def read_receipt(path: str | Path) -> dict[str, Any]:
    """Read a receipt from a file, or raise `DamagedFile`."""
    try:
        with open_regular_file(Path(path)) as file:
            receipt = json.loads(read_at_most(file, MAX_RECEIPT_BYTES))
        is_valid = all(isinstance(receipt[name], type_) for name, type_ in FIELDS.items())
        if not is_valid or receipt["format"] != RECEIPT_FORMAT or not all(isinstance(user, str) for user in receipt["users"]):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DamagedFile("a receipt for forgetting", f"something else in {Path(path).name}", "Check the path") from None
    return dict(receipt)


def verify_receipt(receipt: dict[str, Any], folder: str | Path, user: Any = None) -> list[tuple[str, bool]]:
    """Check a receipt against a saved model, without trusting either.

    Parameters
    ----------
    receipt
        What `read_receipt` returned.
    folder
        The model, as it was saved after forgetting, or a later version of it.
    user
        An id that the receipt should be of, if it is known.

    Returns
    -------
    list
        What was checked, as sentences, and whether each holds.
    """
    model = load_model(folder)  # verifies all checksums
    histories = model.histories
    if histories is None:
        raise InvalidInput("a model with its users' histories", "one without", "Name the model of the receipt")
    forgotten = set(receipt["users"])
    is_absent = not any(hash_user(known, receipt["salt"]) in forgotten for known in histories.users.tolist())
    residual, bound = measure_model_residual(model)
    checks = [
        ("None of the forgotten users is in the model", is_absent),
        (f"The model equals a new fit on its interactions: residual {residual:.2g}, bound {bound:g}", residual < bound),
        ("The model is of the recipe of the receipt", model.recipe.to_json() == receipt["recipe"]),
        ("The users and interactions are those of the receipt, byte for byte", hash_model(model) == receipt["after"]),
    ]
    if user is not None:
        checks.insert(0, (f"The receipt is of {user!r}", hash_user(user, receipt["salt"]) in forgotten))
    return checks
