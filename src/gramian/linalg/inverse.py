"""The inverse of a symmetric positive definite matrix, in place on its stored half.

The algorithm is one sweep over the block columns. Sweeping block K turns

    [ A_KK  A_Kr ]        [ −A_KK⁻¹          A_KK⁻¹ A_Kr             ]
    [ A_rK  A_rr ]  into  [ A_rK A_KK⁻¹      A_rr − A_rK A_KK⁻¹ A_Kr ]

and sweeping every block once leaves −A⁻¹. With the Cholesky factor A_KK = R Rᵀ and E = A_rK R⁻ᵀ, the update is A_rr − E Eᵀ,
as in a block Cholesky factorization. The sweep is therefore as stable as Cholesky followed by inversion and costs the same n³
operations. All but O(n²·width) of them are in products of blocks, which are cut into tiles that the threads take from a queue
(`tasks.py`). Beside the matrix it needs memory for one block column.

Two measures make float32 safe. The matrix is first scaled to a unit diagonal. And before the sweep the matrix is
multiplied by a few random vectors V, the probes; the finished inverse must map these products back to V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.linalg import get_lapack_funcs

from gramian.errors import Inaccurate
from gramian.linalg.blas import multiply_triangular, subtract_product
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.tasks import Runner, task_queue
from gramian.progress import track

SWEEP_ROWS = 512  # rows of a tile, the unit of work of a thread: 3 ms of one core in float32; see benchmarks/contention.py
N_PROBES = 4  # random vectors of the accuracy check
TOLERANCE = {np.dtype(np.float32): 2e-3, np.dtype(np.float64): 1e-6}  # largest residual; probes have entries of about 1
INACCURATE_REMEDY = "Raise l2 (or dropout), or use float64: dtype='float64' in fit or in Gram.of"


def column_size(n: int, width: int) -> int:
    """The number of elements in a block column of full height."""
    return n * min(n, width)


def pivot_size(n: int, width: int) -> int:
    """The number of elements in the sweep's temporary matrices of the size of a pivot block."""
    return 5 * min(n, width) ** 2


class SymmetricOperator(Protocol):
    """A symmetric n × n matrix that can be multiplied by, however it is stored."""

    @property
    def n(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __matmul__(self, right: np.ndarray) -> np.ndarray: ...


class Tile(NamedTuple):
    """The rows [top, bottom) of a block column [first, last), and a view of its values."""

    first: int
    last: int
    top: int
    bottom: int
    values: np.ndarray


def cut_tiles(first: int, last: int, block: np.ndarray) -> list[Tile]:
    """Cut a block column, as `Symmetric.blocks` yields it, into tiles."""
    n = first + len(block)
    ranges = [(top, min(top + SWEEP_ROWS, n)) for top in range(first, n, SWEEP_ROWS)]
    return [Tile(first, last, top, bottom, block[top - first : bottom - first]) for top, bottom in ranges]


class Sweep:
    """The state of a sweep, held in memory. `ResumableSweep` holds it in a file.

    A step sweeps one block column in three stages: it computes `column` and `inverse_factor`, updates every other block, and
    writes the swept block column back from `workspace`. One last step, after all block columns, undoes the scaling.
    """

    step = 0

    def __init__(self, matrix: Symmetric) -> None:
        width = min(matrix.n, matrix.width)
        self.matrix = matrix
        self.column = np.empty(column_size(matrix.n, matrix.width), matrix.dtype)  # E
        self.workspace = self.column  # may be the same memory, as this sweep is never resumed
        self.inverse_factor = np.empty((width, width), matrix.dtype, order="F")  # R⁻¹

    def must_prepare(self) -> bool:
        """Whether `column` and `inverse_factor` of this step are still to be computed."""
        return True

    def mark_prepared(self) -> None:
        """Record that `column` and `inverse_factor` of this step are complete."""

    def update_blocks(self, update: Callable[[Tile], None], run: Runner) -> None:
        """Call `update` once with every tile of the matrix."""
        run(update, [tile for block in self.matrix.blocks() for tile in cut_tiles(*block)])

    def mark_finished(self) -> None:
        """Record that this step is complete."""
        self.step += 1


def invert(matrix: Symmetric) -> None:
    """Replace a positive definite matrix by its inverse. Raises `Inaccurate` if rounding spoils it."""
    scale, image = scale_and_probe(matrix)
    sweep_blocks(Sweep(matrix), scale)
    check_inverse(matrix, scale, image)


def scale_and_probe(matrix: Symmetric) -> tuple[np.ndarray, np.ndarray]:
    """Scale A in place to a unit diagonal. Returns the scale and image = A · diag(scale) · V, with the A before scaling."""
    diagonal = matrix.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        smallest = f"{diagonal.min():.3g} at item {int(diagonal.argmin())}"
        raise Inaccurate("a positive diagonal", smallest, INACCURATE_REMEDY)
    scale = (1 / np.sqrt(diagonal)).astype(matrix.dtype)
    matrix.scale(scale)
    return scale, (matrix @ draw_probes(matrix)) / scale[:, None]


def draw_probes(matrix: SymmetricOperator) -> np.ndarray:
    """Draw V: n × N_PROBES standard normal numbers, the same for every matrix of that size."""
    return np.random.default_rng(0).standard_normal((matrix.n, N_PROBES)).astype(matrix.dtype)


def measure_residual(inverse: SymmetricOperator, scale: np.ndarray, image: np.ndarray) -> float:
    """The largest entry of |diag(scale)⁻¹ · A⁻¹ · image − V|. A maximum, so that no single bad item is averaged away."""
    return float(np.abs((inverse @ image) / scale[:, None] - draw_probes(inverse)).max())


def check_inverse(inverse: Symmetric, scale: np.ndarray, image: np.ndarray) -> None:
    """Raise `Inaccurate` if the residual exceeds `TOLERANCE`. `scale` and `image` come from `scale_and_probe`."""
    residual, allowed = measure_residual(inverse, scale, image), TOLERANCE[inverse.dtype]
    if not residual < allowed:
        expected = f"an inverse with residuals below {allowed:g}"
        raise Inaccurate(expected, f"{residual:.2g} in {inverse.dtype}", INACCURATE_REMEDY)


def inverse_residual(inverse: SymmetricOperator, x: sp.csr_array, s: np.ndarray, penalty: np.ndarray) -> float:
    """The residual of an inverse of XᵀX + diag(penalty), computed from the sparse X without forming the Gram matrix.

    `s` is the diagonal of XᵀX.
    """
    scale = 1 / np.sqrt(s + penalty)
    scaled = scale[:, None] * draw_probes(inverse)
    image = penalty[:, None] * scaled
    add_gram_product(image, x.indptr, x.indices, x.data, scaled)
    return measure_residual(inverse, scale, image.astype(inverse.dtype))


def sweep_blocks(sweep: Sweep, scale: np.ndarray) -> None:
    """Run a sweep from its current step to the end, which replaces the scaled matrix by the inverse of the original one."""
    with task_queue() as run:
        for first, last in track(sweep.matrix.spans()[sweep.step :], "inverting"):
            sweep_block(sweep, first, last, run)

        def undo_scale(tile: Tile) -> None:
            values = tile.values
            values *= -scale[tile.first : tile.last]
            values *= scale[tile.top : tile.bottom, None]

        sweep.update_blocks(undo_scale, run)
        sweep.mark_finished()


def sweep_block(sweep: Sweep, first: int, last: int, run: Runner) -> None:
    """Sweep the block column [first, last)."""
    matrix, width = sweep.matrix, last - first
    column, workspace = (flat[: matrix.n * width].reshape(matrix.n, width) for flat in (sweep.column, sweep.workspace))
    inverse_factor = sweep.inverse_factor[:width, :width]
    row_ranges = [(top, min(top + SWEEP_ROWS, matrix.n)) for top in range(0, matrix.n, SWEEP_ROWS)]
    above = [block for block in matrix.blocks() if block[0] < first]  # the blocks that hold the rows of this column above it

    def read_row(block: tuple[int, int, np.ndarray]) -> None:
        column[block[0] : block[1]] = block[2][first - block[0] : last - block[0]].T

    def write_row(block: tuple[int, int, np.ndarray]) -> None:
        block[2][first - block[0] : last - block[0]] = workspace[block[0] : block[1]].T

    def update(tile: Tile) -> None:
        if tile.first != first:
            subtract_product(tile.values, column[tile.top : tile.bottom].T, column[tile.first : tile.last].T)

    def finish(rows: tuple[int, int]) -> None:
        part = workspace[slice(*rows)]
        if sweep.workspace is not sweep.column:
            part[:] = column[slice(*rows)]
        multiply_triangular(inverse_factor, part.T, transpose=True)  # E R⁻¹ = A_rK A_KK⁻¹

    if sweep.must_prepare():
        run(read_row, above)
        column[first:] = matrix.block(first, last)  # A_rK, at full height
        inverse_factor[:] = invert_factor(column[first:last], first)
        column[first:last] = 0
        run(lambda rows: multiply_triangular(inverse_factor, column[slice(*rows)].T), row_ranges)  # E = A_rK R⁻ᵀ
        sweep.mark_prepared()
    sweep.update_blocks(update, run)
    run(finish, row_ranges)
    (lauum,) = get_lapack_funcs(("lauum",), dtype=matrix.dtype)
    lower = np.tril(lauum(inverse_factor, lower=1)[0])  # of A_KK⁻¹ = R⁻ᵀ R⁻¹
    workspace[first:last] = -(lower + np.tril(lower, -1).T)
    run(write_row, above)
    matrix.block(first, last)[:] = workspace[first:]
    sweep.mark_finished()


def invert_factor(pivot: np.ndarray, first: int) -> np.ndarray:
    """R⁻¹ of the Cholesky factor R of a pivot block, whose first item is `first`. Raises `Inaccurate` if there is none."""
    potrf, trtri = get_lapack_funcs(("potrf", "trtri"), dtype=pivot.dtype)
    factor, failed = potrf(pivot, lower=1)
    if failed:
        item = f"a pivot not above 0 at item {first + failed - 1}"
        raise Inaccurate("a positive definite matrix", item, INACCURATE_REMEDY)
    inverse_factor: np.ndarray = trtri(factor, lower=1, overwrite_c=1)[0]
    return inverse_factor


@njit(cache=True, nogil=True)
def add_gram_product(out, indptr, columns, values, right):  # type: ignore[no-untyped-def]
    # out += XᵀX · right for a few columns, in their precision: SciPy would copy the values of X in it
    width = right.shape[1]
    products = np.empty(width)
    for user in range(len(indptr) - 1):
        products[:] = 0
        for entry in range(indptr[user], indptr[user + 1]):
            for column in range(width):
                products[column] += values[entry] * right[columns[entry], column]
        for entry in range(indptr[user], indptr[user + 1]):
            for column in range(width):
                out[columns[entry], column] += values[entry] * products[column]
