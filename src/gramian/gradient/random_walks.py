"""Neighbourhoods by random walks on the graph of users and items   (Ying et al. 2018)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.linalg.sparse import rank_within_rows, row_of_entry

WALK_STEPS = 3  # from a user to an item, a user and an item: the first and the third step visit the other side
SEED = 0


def sample_neighbours(x: sp.csr_array, n_neighbours: int, n_walks: int) -> sp.csr_array:
    """For each row, the columns that random walks from it visit most, with their shares of these visits.

    x is the pattern of rows × columns. A walk goes to a random column of its row, from there to a random row, and so on.
    """
    rng = np.random.default_rng(SEED)
    by_column = sp.csr_array(x.T.tocsr())
    start = np.repeat(np.flatnonzero(np.diff(x.indptr)), n_walks)
    node, visits = start, []
    for step in range(WALK_STEPS):
        side = x if step % 2 == 0 else by_column
        sizes = side.indptr[node + 1] - side.indptr[node]
        node = side.indices[side.indptr[node] + (rng.random(len(node)) * sizes).astype(np.int64)].astype(np.int64)
        if step % 2 == 0:
            visits.append(node)
    rows, columns = np.concatenate([start] * len(visits)), np.concatenate(visits)
    counts = sp.csr_array((np.ones(len(rows)), (rows, columns)), x.shape)  # adds up equal pairs
    counts.sum_duplicates()
    row = row_of_entry(counts)
    is_kept = rank_within_rows(counts, -counts.data) < n_neighbours
    kept = sp.csr_array((counts.data[is_kept], (row[is_kept], counts.indices[is_kept])), x.shape)
    kept.data /= np.repeat(kept.sum(axis=1), np.diff(kept.indptr))
    return kept
