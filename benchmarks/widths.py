"""Which width of a block column makes the inverse fastest: seconds by width, alternating, best of the rounds.

python benchmarks/widths.py                  # 8,192 items
python benchmarks/widths.py 16384 --rounds 1
"""

import argparse

import numpy as np
from measure import seconds

from gramian.data.synthetic import clustered
from gramian.linalg.gram import write_gram
from gramian.linalg.inverse import invert
from gramian.linalg.symmetric import Symmetric

WIDTHS = (128, 256, 384, 512, 768, 1024)


def time_inverse(n: int, width: int, dense: np.ndarray) -> float:
    matrix = Symmetric.empty(n, width=width)
    for first, last, block in matrix.blocks():
        block[:] = dense[first:, first:last]
    return seconds(lambda: invert(matrix))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("items", type=int, nargs="?", default=8_192)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    events = clustered(2 * arguments.items, arguments.items, 50 * arguments.items)
    source = Symmetric.empty(events.n_items)
    write_gram(source, events.matrix)
    source.change_diagonal(lambda diagonal, first, last: diagonal + 200)
    dense = source.dense()
    times = [[time_inverse(events.n_items, width, dense) for width in WIDTHS] for _ in range(arguments.rounds)]
    best = np.min(times, axis=0)
    for width, elapsed in zip(WIDTHS, best, strict=True):
        print(f"{width:5} columns {elapsed:8.2f} s   ratio to the best {elapsed / best.min():.2f}")


if __name__ == "__main__":
    main()
