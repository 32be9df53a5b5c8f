"""Synthetic interactions with a popularity curve and clusters of tastes like real logs, for benchmarks and tests."""

import numpy as np
import scipy.sparse as sp

from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.data.interactions import Interactions


def clustered(n_users: int, n_items: int, n_interactions: int, *, n_tastes: int = 50, seed: int = 0) -> Interactions:
    """Draw items from a Zipf distribution for users of a few tastes, half of them within the taste's part of the catalog.

    Repeated draws of one user and item merge, so there are somewhat fewer interactions than asked for.
    """
    rng = np.random.default_rng(seed)
    activity = rng.pareto(1.5, n_users) + 0.2
    rows = np.sort(rng.choice(n_users, n_interactions, p=activity / activity.sum()).astype(np.int32))
    ranks = (n_items ** rng.random(n_interactions)).astype(np.int64) % n_items  # log-uniform ranks: Zipf's curve
    taste = (rows % n_tastes).astype(np.int64)
    within_taste = rng.random(n_interactions) < 0.5
    columns = np.where(within_taste, (ranks * n_tastes + taste) % n_items, ranks)
    columns = rng.permutation(n_items)[columns].astype(np.int32)
    matrix = sp.coo_array((np.ones(n_interactions, np.float32), (rows, columns)), shape=(n_users, n_items)).tocsr()
    matrix.data[:] = 1
    return Interactions(matrix, Index(range(n_users)), Catalog(Index(range(n_items))))
