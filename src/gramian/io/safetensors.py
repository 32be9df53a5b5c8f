"""The safetensors format: 8 bytes of header length, a JSON header, raw arrays.

Written here rather than by the `safetensors` package because its writer copies every array in memory first, which would double
the memory of a fit. Reading makes views of a buffer: a memory map or bytes. The package reads these files in the tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

SAFETENSORS_DTYPES = {"F64": np.float64, "I64": np.int64, "F32": np.float32, "I32": np.int32, "BOOL": np.bool_}
BYTES_PER_WRITE = 1 << 24
LENGTH_BYTES = 8  # of the header's length
MAX_HEADER_BYTES = 1 << 20  # some ten thousand arrays; saved objects have at most a few hundred


def do_nothing() -> None:
    """Proceed."""


def write_safetensors(
    path: Path, arrays: Mapping[str, np.ndarray], proceed: Callable[[], None] = do_nothing
) -> tuple[int, str]:
    """Write arrays to a new file; return its size and sha256. `proceed` is as in `write_and_hash`."""
    return write_and_hash(path, list_chunks(arrays), proceed)


def list_chunks(arrays: Mapping[str, np.ndarray]) -> list[Any]:
    """Return the bytes of a file of arrays as buffers, one after the other."""
    code = {np.dtype(dtype): name for name, dtype in SAFETENSORS_DTYPES.items()}
    header: dict[str, Any] = {}
    chunks, offset = [], 0
    for name in sorted(arrays, key=lambda name: -arrays[name].itemsize):  # widest first keeps every array aligned
        array = np.ascontiguousarray(arrays[name])
        header[name] = {"dtype": code[array.dtype], "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        chunks += [array.reshape(-1)] if array.size else []
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(LENGTH_BYTES, "little") + text, *chunks]


def view_safetensors(content: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays of a file as views of its bytes. Raises ValueError or another error of malformed content.

    Parameters
    ----------
    content
        The bytes of the file. Nothing in them is trusted.
    """
    length = int.from_bytes(content[:LENGTH_BYTES].tobytes(), "little")
    start = LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES or start > len(content):
        raise ValueError("a header that is too long")
    header = json.loads(content[LENGTH_BYTES:start].tobytes())
    entries = sorted((entry["data_offsets"], name) for name, entry in header.items())
    bounds = [0, *(end for (_, end), _ in entries)]
    if [begin for (begin, _), _ in entries] != bounds[:-1] or start + bounds[-1] != len(content):
        raise ValueError("arrays that overlap or leave gaps")
    return {name: _view_array(content[start:], header[name], start) for _, name in entries}


def _view_array(body: np.ndarray, entry: dict[str, Any], start: int) -> np.ndarray:
    """Return the array of a header's entry as a view of the file's body, which starts at byte `start`."""
    dtype, shape, (begin, end) = np.dtype(SAFETENSORS_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and 0 <= n <= start + len(body) for n in (*shape, begin, end)):
        raise ValueError("a shape that does not fit the file")
    if prod(shape) * dtype.itemsize != end - begin or (start + begin) % dtype.itemsize:
        raise ValueError("an array of another size, or one that is not aligned")
    if dtype == np.bool_ and (body[begin:end] > 1).any():
        raise ValueError("a truth value other than 0 and 1")
    return body[begin:end].view(dtype).reshape(shape)


def write_and_hash(path: Path, chunks: list[Any], proceed: Callable[[], None] = do_nothing) -> tuple[int, str]:
    """Write buffers to a new file and flush it to the disk; return its size and sha256.

    `proceed` is called before each write. It may raise an error to give up.
    """
    digest, n_bytes = sha256(), 0
    with open(path, "xb") as file:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            for start in range(0, len(view), BYTES_PER_WRITE):
                proceed()
                digest.update(view[start : start + BYTES_PER_WRITE])
                file.write(view[start : start + BYTES_PER_WRITE])
            n_bytes += len(view)
        file.flush()
        os.fsync(file.fileno())
    return n_bytes, digest.hexdigest()
