"""XᵀX · B for a sparse X and a thin dense B, without forming XᵀX: a row of X at a time, whose product stays in registers.

For row x of X and a strip of columns of B, p = x·B is summed in vector registers and xᵀp is added to the result at once. Each
thread has rows of its own and a result of its own, so that the sum does not depend on which thread finishes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from llvmlite import ir  # type: ignore[import-untyped]
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils

from gramian.linalg.register_tiles import VectorBuilder, intrinsic

WIDE_STRIP, NARROW_STRIP = 32, 8  # columns of B whose products are in registers


def apply_gram(x: sp.csr_array, right: np.ndarray) -> np.ndarray:
    """Return xᵀ · x · right."""
    n_columns, width = right.shape
    padded = np.zeros((n_columns, -(-width // NARROW_STRIP) * NARROW_STRIP), right.dtype)
    padded[:, :width] = right
    cuts = np.searchsorted(x.indptr, np.linspace(0, x.nnz, get_num_threads() + 1)[1:-1])  # as many entries for each thread
    bounds = np.concatenate([[0], cuts, [x.shape[0]]])
    out = np.zeros((len(bounds) - 1, padded.size), right.dtype)
    apply_gram_kernel(out, bounds, x.indptr, x.indices, x.data.astype(right.dtype, copy=False), padded.ravel(), padded.shape[1])
    total = out[0] if len(out) == 1 else out.sum(axis=0)
    return total.reshape(padded.shape)[:, :width]


def define_strip(lanes: int, n_vectors: int, n_sums: int) -> Any:
    """Define an intrinsic for one row of X and lanes · n_vectors columns of B, with `n_sums` entries in flight."""

    def declare(
        typing_context: Any, out: Any, right: Any, at: Any, width: Any, indices: Any, data: Any, start: Any, stop: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            write, kinds, int64 = VectorBuilder(context, builder, signature.args[0], lanes), signature.args, ir.IntType(64)
            out_start, right_start = write.start(kinds[0], args[0], args[2]), write.start(kinds[1], args[1], args[2])
            columns, values = write.start(kinds[4], args[4], args[6]), write.start(kinds[5], args[5], args[6])
            n_entries, steps = builder.sub(args[7], args[6]), [ir.Constant(int64, v * lanes) for v in range(n_vectors)]
            zero = ir.Constant(write.vector, [0.0] * lanes)
            sums = [[cgutils.alloca_once(builder, write.vector) for _ in steps] for _ in range(n_sums)]
            for address in [address for vectors in sums for address in vectors]:
                builder.store(zero, address)

            def read_entry(matrix: Any, entry: Any) -> tuple[list[Any], Any]:
                column = context.cast(builder, builder.load(builder.gep(columns, [entry])), kinds[4].dtype, types.int64)
                row = builder.gep(matrix, [builder.mul(column, args[3])])
                value = write.broadcast(builder.load(builder.gep(values, [entry])))
                return [builder.gep(row, [step]) for step in steps], value

            def add_entry(entry: Any, vectors: list[Any]) -> None:
                addresses, value = read_entry(right_start, entry)
                for address, total in zip(addresses, vectors, strict=True):
                    builder.store(write.multiply_add(value, write.load(address), builder.load(total)), total)

            n_full = builder.sdiv(n_entries, ir.Constant(int64, n_sums))
            with cgutils.for_range(builder, n_full) as loop:
                for number, vectors in enumerate(sums):
                    first = builder.mul(loop.index, ir.Constant(int64, n_sums))
                    add_entry(builder.add(first, ir.Constant(int64, number)), vectors)
            done = builder.mul(n_full, ir.Constant(int64, n_sums))
            with cgutils.for_range(builder, builder.sub(n_entries, done)) as loop:
                add_entry(builder.add(done, loop.index), sums[0])
            products = [builder.load(address) for address in sums[0]]
            for vectors in sums[1:]:
                products = [builder.fadd(a, builder.load(b)) for a, b in zip(products, vectors, strict=True)]
            with cgutils.for_range(builder, n_entries) as loop:
                addresses, value = read_entry(out_start, loop.index)
                for address, product in zip(addresses, products, strict=True):
                    write.store(write.multiply_add(value, product, write.load(address)), address)
            return context.get_dummy_value()

        integers = types.intp
        return types.void(out, right, integers, integers, indices, data, integers, integers), generate

    return intrinsic(declare)


add_wide_strip = define_strip(lanes=16, n_vectors=WIDE_STRIP // 16, n_sums=2)
add_narrow_strip = define_strip(lanes=NARROW_STRIP, n_vectors=1, n_sums=4)


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def apply_gram_kernel(out, bounds, indptr, indices, data, right, width):  # type: ignore[no-untyped-def]
    # out[t] = x_tᵀ · x_t · right, for the rows x_t of each thread
    for t in prange(len(bounds) - 1):
        result = out[t]
        for row in range(bounds[t], bounds[t + 1]):
            start, stop, at = indptr[row], indptr[row + 1], 0
            while at + WIDE_STRIP <= width:
                add_wide_strip(result, right, at, width, indices, data, start, stop)
                at += WIDE_STRIP
            while at < width:
                add_narrow_strip(result, right, at, width, indices, data, start, stop)
                at += NARROW_STRIP
