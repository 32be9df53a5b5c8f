"""Receipts for forgetting: what was removed from a saved model, in a form that can be checked without the service.

A receipt has no user ids, only salted hashes of them: whoever knows an id can check that it was removed, and the receipt alone
does not tell who it was. It names the model before and after by the hashes of their manifests, which hold the hashes of
all files. The residual says how far the updated model is from a new fit: the largest entry of |P(Av) − v| for random v, where
A is the matrix of the remaining interactions and P its inverse in the model. A fit must meet the same bound.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.recommender import Recommender, load_model
from gramian.core.updates import SupportsVerification
from gramian.errors import DamagedFile, InvalidInput, NotSupported
from gramian.io.ids import encode_ids
from gramian.io.manifest import MANIFEST
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


def hash_folder(folder: str | Path) -> str:
    """Return the hash of a saved model: of its manifest, which has the hashes of the other files."""
    with open_regular_file(Path(folder) / MANIFEST) as file:
        return sha256(read_at_most(file, MAX_RECEIPT_BYTES * 16)).hexdigest()


def measure_model_residual(model: Recommender) -> tuple[float, float]:
    """Return how far a model is from a new fit on its histories, and the bound that a fit must meet."""
    recipe, histories = model.recipe, model.histories
    if not isinstance(recipe, SupportsVerification) or histories is None:
        raise NotSupported("a full-rank autoencoder or Popularity with its histories", type(recipe).__name__, "Fit it again")
    return recipe.residual(model.scorer, histories), TOLERANCE[np.dtype(np.float32)]


def make_receipt(
    before: Recommender, after: Recommender, users: Iterable[Any], hashes: tuple[str, str], started: datetime
) -> dict[str, Any]:
    """Return the receipt for users that were forgotten, after the model without them was saved.

    Parameters
    ----------
    before, after
        The model that had them, and the one that was saved without them.
    users
        Their ids.
    hashes
        The hashes of the folder as it was, and as it is now.
    started
        When the deletion was asked for.
    """
    forgotten, salt = list(users), secrets.token_hex(16)
    residual, bound = measure_model_residual(after)
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
        ("The model is the one of the receipt, byte for byte", hash_folder(folder) == receipt["after"]),
    ]
    if user is not None:
        checks.insert(0, (f"The receipt is of {user!r}", hash_user(user, receipt["salt"]) in forgotten))
    return checks
