"""Naive dense float64 twins of the models, written from their definitions and from nothing else.

No shared inverse, no reduction: every column of W is its own least-squares problem. `columns` picks some of them.
X is users × items; p = dropout, the chance of an entry being dropped, and q = 1 − p.
"""

import itertools

import numpy as np


def without(matrix: np.ndarray, i: int) -> np.ndarray:
    """A matrix or a vector without row and column i."""
    for axis in range(matrix.ndim):
        matrix = np.delete(matrix, i, axis)
    return matrix


def ridge(X, target, l2):
    """argmin ‖target − X w‖² + l2 ‖w‖²."""
    return np.linalg.solve(X.T @ X + l2 * np.eye(X.shape[1]), X.T @ target)


def by_column(n, columns, solve):
    """The columns solve(i) side by side: all of them, or the chosen ones."""
    return np.stack([solve(i) for i in (range(n) if columns is None else columns)], axis=1)


def ease(X, l2, columns=None):
    """argmin ‖X − XW‖² + l2 ‖W‖², diag(W) = 0: each item is regressed on all the others."""
    return by_column(X.shape[1], columns, lambda i: np.insert(ridge(np.delete(X, i, 1), X[:, i], l2), i, 0))


def debiased_ease(X, alpha, l2, columns=None):
    """argmin ‖X − XW‖² − alpha ‖XW‖² + l2 ‖W‖², diag(W) = 0."""

    def column(i):
        others = np.delete(X, i, 1)
        # half the gradient in w: othersᵀ(others·w − x_i) − alpha·othersᵀothers·w + l2·w = 0
        matrix = others.T @ others - alpha * (others.T @ others) + l2 * np.eye(others.shape[1])
        return np.insert(np.linalg.solve(matrix, others.T @ X[:, i]), i, 0)

    return by_column(X.shape[1], columns, column)


def both_kept(n, p):
    """The chance that two entries of one user survive dropout together: q² for different items, q for an item with itself."""
    chance = np.full((n, n), (1 - p) ** 2)
    np.fill_diagonal(chance, 1 - p)
    return chance


def dlae(X, dropout, l2, columns=None):
    """argmin E‖X − X̃W‖² + l2 ‖W‖² where X̃ is X after dropout, survivors divided by q (so that E[X̃] = X)."""
    q = 1 - dropout
    gram = both_kept(X.shape[1], dropout) * (X.T @ X) / q**2  # E[X̃ᵀX̃]
    cross = q * (X.T @ X) / q  # E[X̃ᵀX]
    inputs = gram + l2 * np.eye(X.shape[1])
    return by_column(X.shape[1], columns, lambda i: np.linalg.solve(inputs, cross[:, i]))


def edlae(X, dropout, l2, columns=None):
    """Each item is predicted where it was dropped, from what is left of the others; survivors are not rescaled.

    l2 is on the scale of XᵀX, as in EASE. The second moment of what is left is smaller by q², and so is the penalty here.
    """
    q = 1 - dropout

    def column(i):
        others = np.delete(X, i, 1)
        gram = both_kept(others.shape[1], dropout) * (others.T @ others)
        return np.insert(
            np.linalg.solve(gram + q**2 * l2 * np.eye(others.shape[1]), q * others.T @ X[:, i]),
            i,
            0,
        )

    return by_column(X.shape[1], columns, column)


def rdlae(X, dropout, max_diagonal, l2, columns=None):
    """DLAE with W_ii ≤ max_diagonal: where the bound is active, W_ii is fixed at it and the others are solved for."""
    q = 1 - dropout
    gram = both_kept(X.shape[1], dropout) * (X.T @ X) / q**2 + l2 * np.eye(X.shape[1])
    cross = X.T @ X

    def column(i):
        w = np.linalg.solve(gram, cross[:, i])
        if w[i] <= max_diagonal:
            return w
        others = np.linalg.solve(without(gram, i), without(cross[:, i] - max_diagonal * gram[:, i], i))
        return np.insert(others, i, max_diagonal)

    return by_column(X.shape[1], columns, column)


def deql_system(X, a, b, p, i):
    """H⁽ⁱ⁾ and v⁽ⁱ⁾ of the DEQL paper, Lemma 3.2."""
    n, q = X.shape[1], 1 - p
    G = np.full((n, n), q**2 * p * a**2 + q**3 * b**2)  # i ≠ k ≠ l ≠ i
    np.fill_diagonal(G, q * p * a**2 + q**2 * b**2)  # k = l ≠ i
    G[i, :] = G[:, i] = q**2 * b**2  # k ≠ l = i or l ≠ k = i
    G[i, i] = q * b**2  # k = l = i
    u = np.full(n, q * p * a**2 + q**2 * b**2)  # k ≠ i
    u[i] = q * b**2  # k = i
    return G * (X.T @ X), u * (X.T @ X[:, i])


def deql(X, a, b, p, lam, zero_diagonal=False, columns=None):
    """The DEQL paper's n systems in its parameters: Eq. 16; Eq. 17 with lam; if b = 0, Eq. 13 with lam and a zero diagonal."""
    n = X.shape[1]

    def column(i):
        H, v = deql_system(X, a, b, p, i)
        if b == 0:
            return np.insert(np.linalg.solve(without(H, i) + lam * np.eye(n - 1), without(v, i)), i, 0)
        w = np.linalg.solve(H + lam * np.eye(n), v)
        if not zero_diagonal:
            return w
        t = np.linalg.solve(H + lam * np.eye(n), np.eye(n)[i])
        return w - w[i] / t[i] * t

    return by_column(n, columns, column)


def miller_deql(X, a, b, p, lam, zero_diagonal=False):
    """The DEQL paper's Section 4: one inverse, then two rank-one updates by Miller's theorem for each item."""
    n, q = X.shape[1], 1 - p
    S, eye = X.T @ X, np.eye(X.shape[1])

    def spread(diagonal, off):
        return (off + (diagonal - off) * eye) * S

    inverse = np.linalg.inv(spread(q * p * a**2 + q**2 * b**2, q**2 * p * a**2 + q**3 * b**2) + lam * eye)  # (H₀ + λI)⁻¹
    V = spread(q * b**2, q * p * a**2 + q**2 * b**2)
    E1 = spread(-q * p * (a**2 - b**2), -(q**2) * p * (a**2 - b**2))
    E2 = spread(0, -(q**2) * p * (a**2 - b**2))

    def column(i):
        def solve(v):  # H⁽ⁱ⁾⁻¹ v
            r, w = inverse @ v, inverse @ E1[:, i]
            s, t = r - r[i] / (1 + w[i]) * w, inverse[:, i] - inverse[i, i] / (1 + w[i]) * w
            return s - (E2[:, i] @ s) / (1 + E2[:, i] @ t) * t

        w = solve(V[:, i])
        if not zero_diagonal:
            return w
        unit = solve(eye[i])
        return w - w[i] / unit[i] * unit

    return by_column(n, None, column)


def deql_loss(X, W, a, b, p):
    """E‖A ⊙ (X − (Δ ⊙ X)W)‖² from H and v (Eq. 11)."""
    loss = 0.0
    for i in range(X.shape[1]):
        H, v = deql_system(X, a, b, p, i)
        loss += W[:, i] @ H @ W[:, i] - 2 * W[:, i] @ v + (p * a**2 + (1 - p) * b**2) * X[:, i] @ X[:, i]
    return loss


def enumerated_loss(X, W, a, b, p):
    """The same expectation (Eq. 5) by walking through all 2ⁿ ways to drop items of a row: weight a if dropped, b if kept."""
    loss = 0.0
    for mask in itertools.product([0.0, 1.0], repeat=X.shape[1]):
        kept = np.array(mask)
        chance = np.prod(np.where(kept == 1, 1 - p, p))
        weight = np.where(kept == 1, b, a)
        loss += chance * np.sum((weight * (X - (kept * X) @ W)) ** 2)  # rows are independent and alike: one mask for all
    return loss


def top_k(scores, seen, k):
    """Per user the k best items the user has not seen, best first; fewer where fewer are left."""
    lists = []
    for user in range(scores.shape[0]):
        left = [item for item in range(scores.shape[1]) if not seen[user, item]]
        lists.append(sorted(left, key=scores[user].__getitem__, reverse=True)[:k])
    return lists


def cease(X, F, weights, l2, columns=None):
    """EASE on the interactions with the features below them, each as a user: rows √weight · Fᵀ."""
    return ease(np.vstack([X, np.sqrt(weights)[:, None] * F.T]), l2, columns)


def add_ease(X, F, share, l2, feature_l2):
    """The weighted sum of two EASE models, one of the interactions and one with the features as users."""
    return (1 - share) * ease(X, l2) + share * ease(F.T, feature_l2)


def l3ae(X, C, lam_x, lam_kd, columns=None):
    """argmin ‖X − XB‖² + lam_x ‖B‖² + lam_kd ‖B − C‖², diag(B) = 0: each item is regressed on all the others."""

    def column(i):
        others = np.delete(X, i, 1)
        system = others.T @ others + (lam_x + lam_kd) * np.eye(others.shape[1])
        return np.insert(np.linalg.solve(system, others.T @ X[:, i] + lam_kd * np.delete(C[:, i], i)), i, 0)

    return by_column(X.shape[1], columns, column)


def multi_behavior_ease(parts, l2, other_l2, zero_diagonal_of_all, other_target=0):
    """argmin ‖X_K − Σ_k X_k W_k‖² + Σ_k l2_k ‖W_k‖²: an item of the last kind is regressed on the columns allowed."""
    X, n, n_kinds = np.hstack(parts), parts[0].shape[1], len(parts)
    penalty, target = np.repeat([*[other_l2] * (n_kinds - 1), l2], n), parts[-1] + other_target * sum(parts[:-1])

    def column(i):
        forbidden = [k * n + i for k in range(n_kinds)] if zero_diagonal_of_all else [(n_kinds - 1) * n + i]
        allowed = np.setdiff1d(np.arange(X.shape[1]), forbidden)
        w = np.zeros(X.shape[1])
        inputs = X[:, allowed]
        w[allowed] = np.linalg.solve(inputs.T @ inputs + np.diag(penalty[allowed]), inputs.T @ target[:, i])
        return w

    return by_column(n, None, column)


def sequence_rows(events, weigh_source, weigh_target):
    """Source and target rows of every user, one for each item but the first: dense S and T.

    `weigh_source(steps, gap)` and `weigh_target(steps)` are the weights of an item that is so many steps (from 0) and so much
    time from the border between the two; a weight of None is no entry.
    """
    sources, targets = [], []
    for user in range(events.n_users):
        entries = np.arange(events.matrix.indptr[user], events.matrix.indptr[user + 1])
        entries = sorted(entries, key=lambda e: (events.times[e], events.matrix.indices[e]))
        for border in range(1, len(entries)):
            source, target = np.zeros(events.n_items), np.zeros(events.n_items)
            for place, e in enumerate(entries):
                item, value = events.matrix.indices[e], events.matrix.data[e]
                if place < border:
                    gap = float(events.times[entries[border]] - events.times[e])
                    source[item] = value * weigh_source(border - 1 - place, gap)
                else:
                    target[item] = value * (weigh_target(place - border) or 0)
            sources.append(source)
            targets.append(target)
    return np.array(sources), np.array(targets)


def slist(events, similarity, decay, l2):
    """B of SLIST: rows of all later items, and each history on itself."""
    S, T = sequence_rows(events, lambda steps, gap: np.exp(-steps / decay), lambda steps: np.exp(-steps / decay))
    X = events.matrix.toarray().astype(float)
    inputs = np.vstack([np.sqrt(similarity) * X, np.sqrt(1 - similarity) * S])
    return ridge(inputs, np.vstack([np.sqrt(similarity) * X, np.sqrt(1 - similarity) * T]), l2)


def tale(events, time_scale, floor, l2):
    """B of TALE: rows of the next item alone, with sources weighted by the time that passed."""
    S, T = sequence_rows(
        events,
        lambda steps, gap: floor + (1 - floor) * np.exp(-gap / time_scale),
        lambda steps: 1 if steps == 0 else None,
    )
    return ridge(S, T, l2)
