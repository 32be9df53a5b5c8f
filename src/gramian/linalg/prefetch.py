"""Software prefetching for Numba kernels that gather rows in random order, where each row would otherwise be a cache miss."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

PREFETCH_ROWS = 8  # rows ahead; measured on half steps of ALS, see benchmarks/README.md
CACHE_LINE_BYTES = 64  # on x86-64 and most ARM cores


def prefetch_address(builder: Any, address: Any) -> None:
    """Write the instruction that prefetches the cache line of an address."""
    pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    function_type = ir.FunctionType(ir.VoidType(), [pointer, int32, int32, int32])
    prefetch = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0i8")
    read, high_locality, data_cache = int32(0), int32(3), int32(1)
    builder.call(prefetch, [builder.bitcast(address, pointer), read, high_locality, data_cache])


@intrinsic
def prefetch_line(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line that holds `index` of a contiguous array. Only a hint: no result depends on it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, args[0]).data
        prefetch_address(builder, builder.gep(start, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(inline="always")
def prefetch_row(array, row):  # type: ignore[no-untyped-def]
    # all cache lines of one row of a contiguous matrix
    width = array.shape[1]
    for column in range(0, width, CACHE_LINE_BYTES // array.itemsize):
        prefetch_line(array, row * width + column)  # type: ignore[call-arg]


@njit(inline="always")
def prefetch_ahead(array, indices, p, stop):  # type: ignore[no-untyped-def]
    # the row that indices[p + PREFETCH_ROWS] will ask for, if that is before `stop`
    if p + PREFETCH_ROWS < stop:
        prefetch_row(array, indices[p + PREFETCH_ROWS])
