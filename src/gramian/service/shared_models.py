"""Models in shared memory: several processes serve one copy.

The main process writes what a model folder would hold into a file that exists in memory only (`memfd_create`), and keeps the
full matrix of an item-item model in another. Other processes get their descriptors over a socket and map them. The memory is
free once the last process has unmapped it, however the processes end, so a killed service leaves nothing behind.

The matrix is made in its file: an update writes it there, into the memory of the version before the last (`RecycledMemory`). So
no process may read a version any more when its memory is used again.
"""

from __future__ import annotations

import json
import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gramian.core.recommender import Recommender, assemble_model, load_scorer
from gramian.io.ids import decode_ids, encode_ids
from gramian.io.model_folder import SCORER_PREFIX, pack_model, unpack_model
from gramian.io.safetensors import BYTES_PER_WRITE, list_chunks, view_safetensors
from gramian.linalg.memory import require_memory
from gramian.linalg.recycled import RecycledMemory, find_root
from gramian.linalg.updated import UpdatedSymmetric
from gramian.models.scorers import InverseWeights

MATRIX = f"{SCORER_PREFIX}inverse"  # the array that has a file of its own


class SharedFile(mmap.mmap):
    """A file in memory, mapped. `descriptor` is for other processes."""

    descriptor: int
    is_read_elsewhere: bool

    def __new__(cls, n_bytes: int) -> SharedFile:
        descriptor = os.memfd_create("weights")
        os.ftruncate(descriptor, n_bytes)
        file = super().__new__(cls, descriptor, n_bytes)
        file.descriptor, file.is_read_elsewhere = descriptor, False
        weakref.finalize(file, os.close, descriptor)
        return file


class SharedMemory(RecycledMemory):
    """Recycled memory that other processes can map."""

    def __init__(self) -> None:
        super().__init__(SharedFile)

    def recycle(self, memory: SharedFile) -> None:
        if not memory.is_read_elsewhere:
            super().recycle(memory)


@dataclass(frozen=True)
class SharedModel:
    """The files in memory that hold a model.

    Parameters
    ----------
    content
        A descriptor: the arrays, then facts and ids as JSON.
    n_array_bytes
        Where the arrays end.
    matrix
        A descriptor of the full matrix of an item-item model, if there is one.
    """

    content: int
    n_array_bytes: int
    matrix: int | None

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to send."""
        return [self.content] if self.matrix is None else [self.content, self.matrix]

    def close(self) -> None:
        """Close the descriptors. What is mapped stays."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def find_full_matrix(model: Recommender) -> np.ndarray | None:
    """Return the entries of the full matrix of a model, if it has one."""
    scorer = model.scorer
    if type(scorer) is not InverseWeights or not scorer.inverse.is_full:
        return None
    matrix = scorer.inverse.base if isinstance(scorer.inverse, UpdatedSymmetric) else scorer.inverse
    return matrix.buffer


def find_shared_file(model: Recommender) -> SharedFile | None:
    """Return the file of the full matrix of a model, if it has one that is shared."""
    entries = find_full_matrix(model)
    if entries is None:
        return None
    owner = find_root(entries).base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return owner if isinstance(owner, SharedFile) else None


def move_to_shared_memory(model: Recommender) -> Recommender:
    """Return a model whose full matrix is in new memory, if it has one that is in private memory."""
    scorer = model.scorer
    if type(scorer) is not InverseWeights or not scorer.inverse.is_full or find_shared_file(model) is not None:
        return model
    return model.with_scorer(InverseWeights(scorer.inverse.copy(), scorer.factor, scorer.diagonal))


def share_model(model: Recommender) -> tuple[SharedModel, Recommender]:
    """Write a model to shared memory. Return it, and the model with its scorer's arrays there and not in private memory."""
    file, saved = find_shared_file(model), model.take_apart()
    facts, arrays, ids = pack_model(saved)
    if file is not None:
        del arrays[MATRIX]
    text = json.dumps({"facts": facts, "ids": {name: encode_ids(values) for name, values in ids.items()}}).encode()
    chunks = [memoryview(chunk).cast("B") for chunk in list_chunks(arrays)]
    n_array_bytes = sum(map(len, chunks))
    require_memory(n_array_bytes + len(text), "a model in shared memory", "Serve it with --workers 1")
    shared = SharedModel(os.memfd_create("model"), n_array_bytes, None if file is None else os.dup(file.descriptor))
    try:
        write_all(shared.content, [*chunks, memoryview(text)])
    except BaseException:
        shared.close()
        raise
    if file is not None:
        return shared, model
    views = view_safetensors(map_memory(shared.content)[:n_array_bytes])
    scorer_arrays = {name: views[f"{SCORER_PREFIX}{name}"] for name in saved.scorer_arrays}
    scorer_facts = json.loads(text)["facts"]["scorer_facts"]  # as a scorer reads them: JSON turns tuples into lists
    return shared, model.with_scorer(load_scorer(replace(saved, scorer_facts=scorer_facts, scorer_arrays=scorer_arrays)))


def map_model(shared: SharedModel) -> Recommender:
    """Return the model in shared memory, which this process or another has written."""
    mapped = map_memory(shared.content)
    text = json.loads(mapped[shared.n_array_bytes :].tobytes())
    facts, arrays = text["facts"], view_safetensors(mapped[: shared.n_array_bytes])
    if shared.matrix is not None:
        arrays[MATRIX] = map_matrix(shared.matrix, facts["scorer_facts"]["n"], arrays[f"{SCORER_PREFIX}factor"].dtype)
    ids = {name: decode_ids(encoded) for name, encoded in text["ids"].items()}
    return assemble_model(unpack_model(facts, arrays, ids))


def map_matrix(descriptor: int, n: int, dtype: Any) -> np.ndarray:
    """Return the entries of a full n × n matrix in a file."""
    mapped = map_memory(descriptor)[: n * n * dtype.itemsize]
    mapped[:: mmap.PAGESIZE].max()  # maps every page now, 0.07 s for 20,000 items, and not while the first requests wait
    return mapped.view(dtype)


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
