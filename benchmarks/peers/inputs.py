"""Write the inputs of all jobs: `inputs.py <folder> <users> <items> <interactions>`. Prints as JSON what was made of it."""

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from worker import L2, RANK, K

import gramian as gr
from gramian.data.synthetic import clustered

SAMPLE = 2_000  # users for the slowest jobs


def write(folder: Path, n_users: int, n_items: int, n_interactions: int) -> dict[str, int]:
    folder.mkdir()
    events = clustered(n_users, n_items, n_interactions)
    events = events.take(np.flatnonzero(np.diff(events.matrix.indptr) >= 2))  # one item to learn from and one to find
    split = gr.split.weak(events, validation=0, test=0.1)
    train, target = (gr.Interactions.of(part.matrix) for part in (split.train, split.target))
    sample = train.matrix[:SAMPLE]
    for name, matrix in (("train", train.matrix), ("sample", sample), ("target", target.matrix)):
        sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix), compressed=False)
    model = gr.EASE(L2).fit(train)
    model.save(folder / "model")
    rng = np.random.default_rng(0)
    encoder, decoder = rng.standard_normal((2, n_items, RANK), dtype=np.float32)
    lists, _ = model.top_k(train.matrix, K)
    for name, array in (("weights", model.weights()), ("lists", lists), ("encoder", encoder), ("decoder", decoder)):
        np.save(folder / f"{name}.npy", array)
    return {"users": train.n_users, "items": n_items, "interactions": train.n_interactions, "sample": sample.shape[0]}


print(json.dumps(write(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
