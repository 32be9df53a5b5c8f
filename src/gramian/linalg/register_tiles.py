"""Sums of products in vector registers, for Numba kernels: what BLAS does for large matrices, for many small ones.

Numba compiles loops through LLVM, which vectorises them but keeps no tile of a matrix in registers across an outer loop. These
intrinsics write the vector instructions out. A tile has TILE_ROWS rows and one vector of columns, VECTOR_BYTES wide; LLVM
splits the vectors where the machine has narrower ones. Matrices are flat arrays with a stride between rows, padded to whole
tiles.

    `add_tile`         C += scale · UᵀV for one tile C, with the sum over the rows of U and V
    `solve_tile`       X ← U⁻ᵀX for the TILE_ROWS rows X of a tile and a triangle U
    `transpose_tile`   a square of TILE_ROWS
    `dot_rows`         Fx for TILE_ROWS rows F of a table, at places of which a list is given
    `add_rows`         y += Fᵀc for such rows, and `add_squares` with the squares of their elements
    `prefetch_rows`    the cache lines of such rows
    `copy_scaled`      copies of a row, as it is and scaled
    `take_next`        the next number of a counter that threads share
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic

from gramian.linalg.prefetch import CACHE_LINE_BYTES, prefetch_address

TILE_ROWS = 8  # sums in flight, which hide the latency of multiply-add on current cores
VECTOR_BYTES = 64 if binding.get_host_cpu_features().get("avx512f") else 32


def intrinsic(declare: Any) -> Any:
    """Define a function of Numba kernels by its instructions. mypy cannot know that calls leave out the first argument."""
    return numba_intrinsic(declare)


class VectorBuilder:
    """Writes vector instructions for the elements of one array type."""

    def __init__(self, context: Any, builder: Any, array_type: Any, lanes: int = 0) -> None:
        self.context, self.builder = context, builder
        self.itemsize = array_type.dtype.bitwidth // 8
        self.lanes = lanes or VECTOR_BYTES // self.itemsize
        self.vector = ir.VectorType(context.get_value_type(array_type.dtype), self.lanes)
        name = f"llvm.fmuladd.v{self.lanes}f{8 * self.itemsize}"  # fused where the machine can
        function_type = ir.FunctionType(self.vector, [self.vector] * 3)
        self.fmuladd = cgutils.get_or_insert_function(builder.module, function_type, name)

    def start(self, array_type: Any, array: Any, at: Any) -> Any:
        """The address of an element; of the first one for None."""
        data = self.context.make_array(array_type)(self.context, self.builder, array).data
        return data if at is None else self.builder.gep(data, [at])

    def rows(self, start: Any, stride: Any) -> list[Any]:
        """The addresses of TILE_ROWS vectors."""
        steps = [self.builder.mul(stride, ir.Constant(stride.type, row)) for row in range(TILE_ROWS)]
        return [self.builder.bitcast(self.builder.gep(start, [step]), self.vector.as_pointer()) for step in steps]

    def listed_rows(self, table: Any, places: Any, place_type: Any, stride: Any) -> list[Any]:
        """The addresses of the rows of a table at the next TILE_ROWS places of a list."""
        addresses = []
        for row in range(TILE_ROWS):
            place = self.builder.load(self.builder.gep(places, [ir.Constant(ir.IntType(64), row)]))
            place = self.context.cast(self.builder, place, place_type.dtype, types.int64)
            addresses.append(self.builder.gep(table, [self.builder.mul(place, stride)]))
        return addresses

    def load(self, address: Any) -> Any:
        """A vector from an address of elements or of vectors, which need not be aligned."""
        return self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()), align=self.itemsize)

    def store(self, vector: Any, address: Any) -> None:
        self.builder.store(vector, self.builder.bitcast(address, self.vector.as_pointer()), align=self.itemsize)

    def broadcast(self, value: Any) -> Any:
        """A vector of one value."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        single = self.builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        return self.shuffle(single, undefined, [0] * self.lanes)

    def broadcast_element(self, start: Any, offset: int) -> Any:
        """A vector of the element `offset` elements after an address."""
        return self.broadcast(self.builder.load(self.builder.gep(start, [ir.Constant(ir.IntType(64), offset)])))

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """The named lanes of two vectors, those of the second counted on from those of the first."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))

    def sum_lanes(self, vectors: list[Any]) -> list[Any]:
        """The sums of each vector's lanes, in order, in as few vectors as hold them."""
        n_parts = self.lanes  # of each sum
        while n_parts > len(vectors):
            n_parts //= 2
            low, high = list(range(n_parts)), list(range(n_parts, 2 * n_parts))
            vectors = [self.add_lanes(vector, vector, low, high) for vector in vectors]
        while n_parts > 1:
            n_parts //= 2
            lanes = range(0, 2 * vectors[0].type.count, 2)
            even, odd = list(lanes), [lane + 1 for lane in lanes]
            vectors = [self.add_lanes(a, b, even, odd) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        return vectors

    def add_lanes(self, a: Any, b: Any, first: list[int], second: list[int]) -> Any:
        """The sum of two choices of lanes of two vectors."""
        return self.builder.fadd(self.shuffle(a, b, first), self.shuffle(a, b, second))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a · b + c."""
        return self.builder.call(self.fmuladd, [a, b, c])


@intrinsic
def add_tile(
    typing_context: Any,
    c: Any,
    c_at: Any,
    c_stride: Any,
    u: Any,
    u_at: Any,
    v: Any,
    v_at: Any,
    stride: Any,
    count: Any,
    scale: Any,
) -> Any:
    """c[r, l] += scale · Σ_p u[p, r] v[p, l] for p < count. A matrix begins at an element; u and v have one stride."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
        _, c_at, c_stride, _, u_at, _, v_at, stride, count, scale = args
        u_start, v_start = write.start(kinds[3], args[3], u_at), write.start(kinds[5], args[5], v_at)
        zero = ir.Constant(write.vector, [0.0] * write.lanes)
        sums = [cgutils.alloca_once(builder, write.vector) for _ in range(TILE_ROWS)]  # LLVM keeps them in registers
        for total in sums:
            builder.store(zero, total)
        with cgutils.for_range(builder, count) as loop:
            offset = builder.mul(loop.index, stride)
            u_row, v_row = builder.gep(u_start, [offset]), write.load(builder.gep(v_start, [offset]))
            for row, total in enumerate(sums):
                builder.store(write.multiply_add(write.broadcast_element(u_row, row), v_row, builder.load(total)), total)
        factor = write.broadcast(scale)
        for address, total in zip(write.rows(write.start(kinds[0], args[0], c_at), c_stride), sums, strict=True):
            write.store(write.multiply_add(factor, builder.load(total), write.load(address)), address)
        return context.get_dummy_value()

    integers = types.intp
    return types.void(c, integers, integers, u, integers, v, integers, integers, integers, c.dtype), generate


@intrinsic
def solve_tile(typing_context: Any, x: Any, at: Any, stride: Any, triangle: Any) -> Any:
    """X ← U⁻ᵀX for a tile. `triangle` has −U above its diagonal, and on it the inverse of U's."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
        addresses = write.rows(write.start(kinds[0], args[0], args[1]), args[2])
        start = write.start(kinds[3], args[3], None)
        rows = [write.load(address) for address in addresses]
        for j in range(TILE_ROWS):
            rows[j] = builder.fmul(rows[j], write.broadcast_element(start, j * TILE_ROWS + j))
            for i in range(j + 1, TILE_ROWS):
                rows[i] = write.multiply_add(write.broadcast_element(start, j * TILE_ROWS + i), rows[j], rows[i])
        for row, address in zip(rows, addresses, strict=True):
            write.store(row, address)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, triangle), generate


@intrinsic
def transpose_tile(typing_context: Any, out: Any, out_at: Any, out_stride: Any, x: Any, at: Any, stride: Any) -> Any:
    """out[c, r] = x[r, c] for a square of TILE_ROWS."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0], TILE_ROWS), signature.args
        rows = [write.load(address) for address in write.rows(write.start(kinds[3], args[3], args[4]), args[5])]
        lanes, distance = range(TILE_ROWS), 1
        while distance < TILE_ROWS:  # exchange the off-diagonal squares of this size in every square of twice the size
            upper = [lane if not lane & distance else TILE_ROWS + lane - distance for lane in lanes]
            lower = [lane + distance if not lane & distance else TILE_ROWS + lane for lane in lanes]
            for row in lanes:
                if not row & distance:
                    a, b = rows[row], rows[row + distance]
                    rows[row], rows[row + distance] = write.shuffle(a, b, upper), write.shuffle(a, b, lower)
            distance *= 2
        for row, address in zip(rows, write.rows(write.start(kinds[0], args[0], args[1]), args[2]), strict=True):
            write.store(row, address)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.intp, x, types.intp, types.intp), generate


@intrinsic
def dot_rows(
    typing_context: Any, out: Any, out_at: Any, table: Any, left: Any, stride: Any, places: Any, at: Any, x: Any, width: Any
) -> Any:
    """out[r] = Σ_k f_r[k] x[k] for the rows f_r = table[places[at + r], left:], and a width padded to whole vectors."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
        table_start, place_start = write.start(kinds[2], args[2], args[3]), write.start(kinds[5], args[5], args[6])
        rows, x_start = write.listed_rows(table_start, place_start, kinds[5], args[4]), write.start(kinds[7], args[7], None)
        zero = ir.Constant(write.vector, [0.0] * write.lanes)
        sums = [cgutils.alloca_once(builder, write.vector) for _ in range(TILE_ROWS)]
        for total in sums:
            builder.store(zero, total)
        with loop_vectors(builder, args[8], write.lanes) as element:
            right = write.load(builder.gep(x_start, [element]))
            for row, total in zip(rows, sums, strict=True):
                builder.store(write.multiply_add(write.load(builder.gep(row, [element])), right, builder.load(total)), total)
        totals = write.sum_lanes([builder.load(total) for total in sums])
        start = write.start(kinds[0], args[0], args[1])
        for number, vector in enumerate(totals):
            address = builder.gep(start, [ir.Constant(ir.IntType(64), number * vector.type.count)])
            builder.store(vector, builder.bitcast(address, vector.type.as_pointer()), align=write.itemsize)
        return context.get_dummy_value()

    integers = types.intp
    return types.void(out, integers, table, integers, integers, places, integers, x, integers), generate


def define_add(squares: bool) -> Any:
    """Define an intrinsic that adds scaled rows, or scaled squares of rows, to a vector. The rows are those of `dot_rows`."""

    def declare(
        typing_context: Any,
        y: Any,
        table: Any,
        left: Any,
        stride: Any,
        places: Any,
        at: Any,
        scales: Any,
        scales_at: Any,
        width: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
            table_start, place_start = write.start(kinds[1], args[1], args[2]), write.start(kinds[4], args[4], args[5])
            rows, y_start = write.listed_rows(table_start, place_start, kinds[4], args[3]), write.start(kinds[0], args[0], None)
            scale_start = write.start(kinds[6], args[6], args[7])
            scales = [write.broadcast_element(scale_start, row) for row in range(TILE_ROWS)]
            with loop_vectors(builder, args[8], write.lanes) as element:
                total = write.load(builder.gep(y_start, [element]))
                for row, scale in zip(rows, scales, strict=True):
                    value = write.load(builder.gep(row, [element]))
                    total = write.multiply_add(builder.fmul(value, scale) if squares else scale, value, total)
                write.store(total, builder.gep(y_start, [element]))
            return context.get_dummy_value()

        integers = types.intp
        return types.void(y, table, integers, integers, places, integers, scales, integers, integers), generate

    return intrinsic(declare)


add_rows, add_squares = define_add(squares=False), define_add(squares=True)


@intrinsic
def prefetch_rows(typing_context: Any, table: Any, left: Any, stride: Any, places: Any, at: Any, width: Any) -> Any:
    """Prefetch the rows that `dot_rows` would read. Only a hint: no result depends on it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
        table_start, place_start = write.start(kinds[0], args[0], args[1]), write.start(kinds[3], args[3], args[4])
        rows = write.listed_rows(table_start, place_start, kinds[3], args[2])
        with loop_vectors(builder, args[5], CACHE_LINE_BYTES // write.itemsize) as element:
            for row in rows:
                prefetch_address(builder, builder.gep(row, [element]))
        return context.get_dummy_value()

    integers = types.intp
    return types.void(table, integers, integers, places, integers, integers), generate


@intrinsic
def copy_scaled(
    typing_context: Any, plain: Any, scaled: Any, at: Any, table: Any, table_at: Any, scale: Any, width: Any
) -> Any:
    """plain[at:] = table[table_at:] and scaled[at:] = scale · table[table_at:], for a width padded to whole vectors."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write, kinds = VectorBuilder(context, builder, signature.args[0]), signature.args
        plain_start, scaled_start = (write.start(kinds[i], args[i], args[2]) for i in (0, 1))
        source, factor = write.start(kinds[3], args[3], args[4]), write.broadcast(args[5])
        with loop_vectors(builder, args[6], write.lanes) as element:
            vector = write.load(builder.gep(source, [element]))
            write.store(vector, builder.gep(plain_start, [element]))
            write.store(builder.fmul(vector, factor), builder.gep(scaled_start, [element]))
        return context.get_dummy_value()

    integers = types.intp
    return types.void(plain, scaled, integers, table, integers, plain.dtype, integers), generate


@contextmanager
def loop_vectors(builder: Any, width: Any, lanes: int) -> Iterator[Any]:
    """Loop over the vectors of a padded width, by the number of their first element."""
    with cgutils.for_range(builder, builder.sdiv(width, ir.Constant(width.type, lanes))) as loop:
        yield builder.mul(loop.index, ir.Constant(width.type, lanes))


@intrinsic
def take_next(typing_context: Any, counter: Any) -> Any:
    """Return counter[0] and add 1 to it, in one step that no other thread can interrupt."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", address, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
