"""A model's folder: the recipe, the scorer's arrays, the catalog, and the users' histories where the model has them.

A folder without a scorer holds a model that is yet to be fitted. It is fitted when it is loaded.

A folder from an untrusted source may hold anything under a valid checksum, and the kernels check no bounds. Everything they
rely on is therefore checked here and in the scorers' `load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.data.kinds import MAX_KINDS
from gramian.errors import Inaccurate
from gramian.io.catalog import catalog_ids, feature_arrays, read_catalog
from gramian.io.damage import report_damage, require_content, require_finite
from gramian.io.folder import FolderContent, open_folder, read_manifest, write_folder
from gramian.linalg.finite import find_non_finite

SCORER_PREFIX = "scorer."


@dataclass(frozen=True)
class SavedModel:
    """The parts of a model as a folder holds them.

    Parameters
    ----------
    recipe
        The recipe as JSON.
    scorer
        The name of the scorer class; None for a model that is fitted when it is loaded.
    scorer_facts, scorer_arrays
        What the scorer's `save` returned.
    catalog, histories
        The items, and the users' interactions if the model has them.
    card
        The model card as JSON, if the model has one.
    log_position
        The number of the last record of an event log that the model has learned.
    """

    recipe: dict[str, Any]
    scorer: str | None
    scorer_facts: dict[str, Any]
    scorer_arrays: dict[str, np.ndarray]
    catalog: Catalog
    histories: Interactions | None
    card: dict[str, Any] | None = None
    log_position: int = 0

    @property
    def scorer_bytes(self) -> int:
        """The size of the scorer's arrays."""
        return sum(array.nbytes for array in self.scorer_arrays.values())

    def without_scorer(self) -> SavedModel:
        """Return the model as it is before its fit."""
        is_double = any(array.dtype == np.float64 for array in self.scorer_arrays.values())
        return replace(self, scorer=None, scorer_facts={"dtype": "float64" if is_double else "float32"}, scorer_arrays={})


def save_model_folder(path: str | Path, model: SavedModel, **options: Any) -> None:
    """Write a model to a folder, completely or not at all. A model that could not be loaded is refused.

    Parameters
    ----------
    path
        The folder.
    model
        The parts of the model.
    **options
        `proceed` and `replacing` of `write_folder`.
    """
    name = find_non_finite(model.scorer_arrays)
    if name is not None:
        raise Inaccurate(f"finite numbers in the model's {name}", "NaN or infinity", "Fit it with a higher l2 or in float64")
    write_folder(path, "model", *pack_model(model), **options)


def is_fitted(path: str | Path) -> bool:
    """Return whether a folder has the fitted arrays of its model."""
    return read_manifest(Path(path), "model")["facts"]["scorer"] is not None


def pack_model(model: SavedModel) -> FolderContent:
    """Return the facts, arrays and ids that make up a model."""
    facts: dict[str, Any] = {"recipe": model.recipe, "scorer": model.scorer, "scorer_facts": model.scorer_facts}
    facts |= {} if model.card is None else {"card": model.card}
    facts |= {"log_position": model.log_position} if model.log_position else {}
    arrays = {f"{SCORER_PREFIX}{name}": array for name, array in model.scorer_arrays.items()}
    arrays |= feature_arrays(model.catalog)
    ids = catalog_ids(model.catalog)
    if model.histories is None:
        arrays["popularity"] = model.catalog.popularity.astype(np.int64)
    else:
        matrix = model.histories.matrix
        arrays |= {"indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32)}
        arrays |= {} if model.histories.is_binary else {"data": matrix.data}
        ids["users"] = model.histories.users.tolist()
        if model.histories.kinds is not None:
            facts["kinds"] = list(model.histories.kinds)
    return facts, arrays, ids


@contextmanager
def open_model_folder(path: str | Path, *, private: bool = False) -> Iterator[SavedModel]:
    """Yield a saved model while its checksums are computed. What is built in the block is discarded if they do not match."""
    with open_folder(path, "model", private=private) as content, report_damage(path):
        saved = unpack_model(*content)
        require_finite(saved.scorer_arrays)
        yield saved


def unpack_model(facts: dict[str, Any], arrays: dict[str, np.ndarray], ids: dict[str, list[Any]]) -> SavedModel:
    """Return the model that `pack_model` took apart, after every check but that of the scorer's numbers."""
    popularity = arrays.get("popularity", arrays.get("touched"))  # "touched" is the name of version 0.1
    if popularity is None:
        histories = _read_histories(arrays, ids, facts.get("kinds"))
        catalog = histories.catalog
    else:
        histories, catalog = None, read_catalog(popularity, ids, arrays)
    scorer_arrays = {
        name.removeprefix(SCORER_PREFIX): array for name, array in arrays.items() if name.startswith(SCORER_PREFIX)
    }
    card, position = facts.get("card"), facts.get("log_position", 0)
    require_content(card is None or isinstance(card, dict), "a model card with named entries")
    require_content(type(position) is int and position >= 0, "the number of a record as log_position")
    names = facts["recipe"], facts["scorer"], facts["scorer_facts"]
    return SavedModel(*names, scorer_arrays, catalog, histories, card, position)


def _read_histories(arrays: dict[str, np.ndarray], ids: dict[str, list[Any]], kinds: Any = None) -> Interactions:
    users, catalog = Index(ids["users"]), read_catalog(np.zeros(len(ids["items"]), np.int64), ids, arrays)
    indptr, columns = arrays["indptr"], arrays["indices"]
    require_content(indptr.dtype == np.int64 and columns.dtype == np.int32, "interactions by whole numbers")
    require_content(indptr.ndim == columns.ndim == 1, "interactions in rows")
    has_row_per_user = (
        len(indptr) == len(users) + 1 and indptr[0] == 0 and indptr[-1] == len(columns) and (np.diff(indptr) >= 0).all()
    )
    require_content(bool(has_row_per_user), "a row of interactions for every user")
    is_in_range = len(columns) == 0 or (columns.min() >= 0 and columns.max() < len(catalog))
    is_row_start = np.zeros(len(columns) + 1, np.bool_)
    is_row_start[indptr] = True
    descents = np.flatnonzero(columns[1:] <= columns[:-1]) + 1
    require_content(bool(is_in_range and is_row_start[descents].all()), "each user's items in order, all of them known")
    data = arrays.get("data", np.ones(len(columns), np.float32))
    are_weights_valid = data.dtype.kind == "f" and data.shape == columns.shape and bool((np.isfinite(data) & (data != 0)).all())
    require_content(are_weights_valid, "finite weights that are not 0")
    if kinds is not None:
        is_list = isinstance(kinds, list) and 0 < len(kinds) <= MAX_KINDS and all(isinstance(kind, str) for kind in kinds)
        require_content(is_list, "the names of the kinds")
        require_content(bool(((data >= 1) & (data < 2 ** len(kinds)) & (data % 1 == 0)).all()), "sets of kinds")
    index = np.int32 if len(columns) < 2**31 else np.int64  # as the kernels expect it
    matrix = sp.csr_array((data, columns.astype(index, copy=False), indptr.astype(index)), (len(users), len(catalog)))
    return Interactions(matrix, users, catalog, kinds=None if kinds is None else tuple(kinds))
