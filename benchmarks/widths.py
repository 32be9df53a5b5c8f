"""Which width of a block column makes the inverse fastest: seconds by width, alternating, best of the rounds.

python benchmarks/widths.py                  # 8,192 items
python benchmarks/widths.py 16384 --rounds 1
"""

import argparse

import numpy as np
from measure import seconds

from gramian.data.synthetic import clustered
from gramian.linalg.gram import fill
from gramian.linalg.inverse import invert
from gramian.linalg.symmetric import Symmetric

WIDTHS = (128, 256, 384, 512, 768, 1024)


def job(n: int, width: int, dense: np.ndarray) -> float:
    matrix = Symmetric.empty(n, width=width)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return seconds(lambda: invert(matrix))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("items", type=int, nargs="?", default=8_192)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    events = clustered(2 * given.items, given.items, 50 * given.items)
    source = Symmetric.empty(events.n_items)
    fill(source, events.matrix)
    source.change_diagonal(lambda diagonal, first, last: diagonal + 200)
    dense = source.dense()
    found = [[job(events.n_items, width, dense) for width in WIDTHS] for _ in range(given.rounds)]
    best = np.min(found, axis=0)
    for width, time in zip(WIDTHS, best, strict=True):
        print(f"{width:5} columns {time:8.2f} s   ratio to the best {time / best.min():.2f}")


if __name__ == "__main__":
    main()
