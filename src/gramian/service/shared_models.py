"""Models in shared memory: several processes serve one copy.

The main process writes what a model folder would hold, and the full matrix of an item-item model, into files that exist in
memory only (`memfd_create`). Other processes get their descriptors over a socket and map them. The memory is free once the last
process has unmapped it, however the processes end, so a killed service leaves nothing behind.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gramian.core.recommender import Recommender, assemble_model
from gramian.core.registry import SCORERS
from gramian.io.ids import decode_ids, encode_ids
from gramian.io.model_folder import SCORER_PREFIX, pack_model, unpack_model
from gramian.io.safetensors import BYTES_PER_WRITE, list_chunks, view_safetensors
from gramian.linalg.memory import require_memory
from gramian.linalg.threads import available_cores
from gramian.models.scorers import DenseWeights
from gramian.service.served_model import is_expandable, with_scorer


@dataclass(frozen=True)
class SharedModel:
    """The files in memory that hold a model.

    Parameters
    ----------
    content
        A descriptor: the arrays, then facts and ids as JSON.
    n_array_bytes
        Where the arrays end.
    rows
        A descriptor of the full matrix of an item-item model, if there is one.
    """

    content: int
    n_array_bytes: int
    rows: int | None

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to send."""
        return [self.content] if self.rows is None else [self.content, self.rows]

    def close(self) -> None:
        """Close the descriptors. What is mapped stays."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def share_model(model: Recommender) -> tuple[SharedModel, Recommender]:
    """Write a model to shared memory. Return it, and the model with its scorer's arrays there and not in private memory."""
    saved = model.take_apart()
    facts, arrays, ids = pack_model(saved)
    text = json.dumps({"facts": facts, "ids": {name: encode_ids(values) for name, values in ids.items()}}).encode()
    chunks = [memoryview(chunk).cast("B") for chunk in list_chunks(arrays)]
    n_array_bytes = sum(map(len, chunks))
    require_memory(n_array_bytes + len(text), "a model in shared memory", "Serve it with --workers 1")
    weights = model.scorer if is_expandable(model.scorer) else None
    shared = SharedModel(os.memfd_create("model"), n_array_bytes, None if weights is None else os.memfd_create("weights"))
    try:
        with ThreadPoolExecutor(1) as background:
            writing = background.submit(write_all, shared.content, [*chunks, memoryview(text)])
            if weights is not None and shared.rows is not None:
                n, dtype = weights.n_items, weights.inverse.dtype
                os.ftruncate(shared.rows, n * n * dtype.itemsize)
                rows = np.frombuffer(mmap.mmap(shared.rows, 0), dtype).reshape(n, n)
                DenseWeights.expand(weights, rows, available_cores())  # this process answers no requests
        writing.result()
    except BaseException:
        shared.close()
        raise
    views = view_safetensors(map_memory(shared.content)[:n_array_bytes])
    scorer_arrays = {name: views[f"{SCORER_PREFIX}{name}"] for name in saved.scorer_arrays}
    scorer_facts = json.loads(text)["facts"]["scorer_facts"]  # as a scorer reads them: JSON turns tuples into lists
    return shared, with_scorer(model, SCORERS.find(saved.scorer).load(scorer_facts, scorer_arrays))


def map_model(shared: SharedModel) -> Recommender:
    """Return the model in shared memory, which this process or another has written."""
    mapped = map_memory(shared.content)
    text = json.loads(mapped[shared.n_array_bytes :].tobytes())
    ids = {name: decode_ids(encoded) for name, encoded in text["ids"].items()}
    model = assemble_model(unpack_model(text["facts"], view_safetensors(mapped[: shared.n_array_bytes]), ids))
    if shared.rows is None:
        return model
    mapped = map_memory(shared.rows)
    mapped[:: mmap.PAGESIZE].max()  # maps every page now, 0.07 s for 20,000 items, and not while the first requests wait
    rows = mapped.view(model.scorer.inverse.dtype)  # type: ignore[attr-defined]
    return with_scorer(model, DenseWeights(model.scorer, rows.reshape(model.scorer.n_items, -1)))  # type: ignore[arg-type]


def map_memory(descriptor: int) -> np.ndarray:
    """Return the bytes of a file, mapped. The array counts as writable, as those that kernels were compiled for; a write would
    copy its page."""
    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), np.uint8)


def write_all(descriptor: int, chunks: Sequence[memoryview]) -> None:
    """Write buffers one after the other, in as many calls as the system needs."""
    for chunk in chunks:
        rest = chunk
        while rest:
            rest = rest[os.write(descriptor, rest[:BYTES_PER_WRITE]) :]
