from pathlib import Path

import numpy as np
from worker import Job, K, main, matrix


def top_k(data: Path) -> Job:
    histories, weights = matrix(data, "train"), np.load(data / "weights.npy")

    def run() -> np.ndarray:
        found = []
        for start in range(0, histories.shape[0], 1_000):
            block = histories[start : start + 1_000]
            scores = block @ weights
            scores[block.nonzero()] = -np.inf
            found.append(np.argpartition(-scores, K, axis=1)[:, :K].copy())  # a view would keep all columns
        return np.concatenate(found)

    return run, lambda columns: columns


main({"top 20": top_k})
