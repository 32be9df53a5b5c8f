"""Ask for memory before it is needed. Rows gathered in no order are each a wait for the memory, unless asked for ahead."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

AHEAD = 8  # rows
LINE = 64  # bytes of a cache line


@intrinsic
def fetch(typing_context: Any, array: Any, at: Any) -> Any:
    """Ask for the cache line that holds a contiguous array's entry number `at`. A hint: it changes nothing."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.bitcast(builder.gep(start, [args[1]]), pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@njit(inline="always")
def fetch_row(array, row):  # type: ignore[no-untyped-def]
    # row of a contiguous array of two dimensions
    width = array.shape[1]
    for at in range(0, width, LINE // array.itemsize):
        fetch(array, row * width + at)  # type: ignore[call-arg]


@njit(inline="always")
def look_ahead(array, indices, p, stop):  # type: ignore[no-untyped-def]
    # ask for the row that will be needed in a few steps
    if p + AHEAD < stop:
        fetch_row(array, indices[p + AHEAD])
