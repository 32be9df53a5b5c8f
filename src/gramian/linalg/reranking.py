"""Kernels that re-rank candidates: one list per row, best first, padded with −1.

The result of a kernel is an order, lists × depth: the position in the list before of what is now at each rank. `cause` and
`amount` say why, by the position in the list before. A user's order depends on that user's list alone, and ties keep the order
of the list before.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from gramian.linalg.symmetric import read_entry


@njit(parallel=True, cache=True)
def order_by_marginal_relevance(order, cause, amount, columns, relevance, similarity, k, diversity):  # type: ignore[no-untyped-def]
    # greedily the largest (1 − diversity) · relevance − diversity · max similarity to what is above; similarity in [0, 1]
    for u in prange(len(columns)):
        n = np.sum(columns[u] >= 0)
        largest = np.float32(0)
        for p in range(n):
            for q in range(p):
                largest = max(largest, similarity[u, p, q])
        scale = 1 / largest if largest > 0 else np.float32(0)
        nearest = np.zeros(n)
        is_taken = np.zeros(n, np.bool_)
        for rank in range(min(k, n)):
            best, best_value = -1, -np.inf
            for p in range(n):
                value = (1 - diversity) * relevance[u, p] - diversity * nearest[p]
                if not is_taken[p] and value > best_value:
                    best, best_value = p, value
            is_taken[best] = True
            order[u, rank] = best
            for p in range(n):
                closeness = max(similarity[u, best, p], np.float32(0)) * scale
                if not is_taken[p] and closeness > nearest[p]:
                    nearest[p], cause[u, p] = closeness, columns[u, best]
        amount[u, :n] = nearest
        append_rest(order[u], is_taken, (1 - diversity) * relevance[u, :n] - diversity * nearest, min(k, n))


@njit(cache=True)
def append_rest(order, is_taken, values, rank):  # type: ignore[no-untyped-def]
    # what was not picked follows by its value
    for p in np.argsort(-values, kind="mergesort"):
        if not is_taken[p]:
            order[rank] = p
            rank += 1


@njit(cache=True)
def divergence_term(target, count, total, smoothing):  # type: ignore[no-untyped-def]
    # p log(p / q̃) with q̃ = (1 − smoothing) · count / total + smoothing · p; the term is 0 where p is
    if target <= 0:
        return 0.0
    share = count / total if total > 0 else 0.0
    return target * np.log(target / ((1 - smoothing) * share + smoothing * target))


@njit(parallel=True, cache=True)
def order_by_calibration(order, cause, amount, columns, relevance, target, tags, k, strength, smoothing):  # type: ignore[no-untyped-def]
    # greedily the largest (1 − strength) · relevance − strength · KL(target ‖ smoothed shares of the list with the item)
    tag_starts, tag_columns, tag_values, n_tags = tags
    target_starts, target_columns, target_values = target
    for u in prange(len(columns)):
        n = np.sum(columns[u] >= 0)
        own = slice(target_starts[u], target_starts[u + 1])
        wanted, counts = np.zeros(n_tags), np.zeros(n_tags)
        for at in range(own.start, own.stop):
            wanted[target_columns[at]] = target_values[at]
        is_taken, values = np.zeros(n, np.bool_), np.empty(n)
        total = 0.0  # tagged items in the list so far
        for rank in range(min(k, n) + 1):
            now = after = 0.0  # the divergence as it is, and with one more tagged item that has none of the wanted tags
            for at in range(own.start, own.stop):
                tag = target_columns[at]
                now += divergence_term(wanted[tag], counts[tag], total, smoothing)
                after += divergence_term(wanted[tag], counts[tag], total + 1, smoothing)
            best, best_value = -1, -np.inf
            for p in range(n):
                if is_taken[p]:
                    continue
                first, last = tag_starts[columns[u, p]], tag_starts[columns[u, p] + 1]
                divergence, most, cause[u, p] = after if last > first else now, 0.0, n_tags  # n_tags: none
                for at in range(first, last):
                    tag = tag_columns[at]
                    gain = divergence_term(wanted[tag], counts[tag], total + 1, smoothing)
                    gain -= divergence_term(wanted[tag], counts[tag] + tag_values[at], total + 1, smoothing)
                    divergence -= gain
                    if gain > most:
                        most, cause[u, p] = gain, tag
                amount[u, p] = divergence - now
                values[p] = (1 - strength) * relevance[u, p] - strength * divergence
                if values[p] > best_value:
                    best, best_value = p, values[p]
            if rank == min(k, n):
                break
            is_taken[best] = True
            order[u, rank] = best
            first, last = tag_starts[columns[u, best]], tag_starts[columns[u, best] + 1]
            for at in range(first, last):
                counts[tag_columns[at]] += tag_values[at]
            total += 1.0 if last > first else 0.0
        append_rest(order[u], is_taken, values, min(k, n))


@njit(parallel=True, cache=True)
def order_by_limit(order, cause, columns, tags, limit, fill):  # type: ignore[no-untyped-def]
    # items with a tag that `limit` items above have move behind all others, or out of the list
    tag_starts, tag_columns, n_tags = tags
    for u in prange(len(columns)):
        n = np.sum(columns[u] >= 0)
        counts, is_late = np.zeros(n_tags, np.int64), np.zeros(n, np.bool_)
        rank = 0
        for p in range(n):
            first, last = tag_starts[columns[u, p]], tag_starts[columns[u, p] + 1]
            for at in range(first, last):
                if counts[tag_columns[at]] >= limit and not is_late[p]:
                    is_late[p], cause[u, p] = True, tag_columns[at]
            if not is_late[p]:
                counts[tag_columns[first:last]] += 1
                order[u, rank] = p
                rank += 1
        if fill:
            append_rest(order[u], ~is_late, -np.arange(n), rank)


@njit(parallel=True, cache=True)
def order_by_slots(order, cause, columns, has_tag, rank, n_slots):  # type: ignore[no-untyped-def]
    # the best items that have the tag and are not above take the slots rank, rank + 1, ...; the others follow in their order
    for u in prange(len(columns)):
        n = np.sum(columns[u] >= 0)
        start = min(rank, n)
        is_taken = np.zeros(n, np.bool_)
        is_taken[:start] = True
        order[u, :start] = np.arange(start)
        at = start
        for p in range(start, n):
            if at < start + n_slots and has_tag[columns[u, p]]:
                is_taken[p], cause[u, p], order[u, at] = True, 0, p
                at += 1
        append_rest(order[u], is_taken, -np.arange(n), at)


@njit(parallel=True, cache=True)
def compare_sparse_rows(columns, starts, indices, values):  # type: ignore[no-untyped-def]
    # inner products of sparse rows, for all pairs of each list: lists × depth × depth
    products = np.zeros((len(columns), columns.shape[1], columns.shape[1]), np.float32)
    for u in prange(len(columns)):
        n = np.sum(columns[u] >= 0)
        for p in range(n):
            for q in range(p):
                a, b = starts[columns[u, p]], starts[columns[u, q]]
                last_a, last_b = starts[columns[u, p] + 1], starts[columns[u, q] + 1]
                total = 0.0
                while a < last_a and b < last_b:
                    if indices[a] == indices[b]:
                        total += values[a] * values[b]
                    is_behind = indices[a] <= indices[b]
                    b += indices[b] <= indices[a]
                    a += is_behind
                products[u, p, q] = products[u, q, p] = total
    return products


@njit(parallel=True, cache=True)
def compare_symmetric(columns, buffer, n, width, scale):  # type: ignore[no-untyped-def]
    # scale_i · A_ij · scale_j for all pairs of each list, from the stored half of A: lists × depth × depth
    entries = np.zeros((len(columns), columns.shape[1], columns.shape[1]), np.float32)
    for u in prange(len(columns)):
        for p in range(np.sum(columns[u] >= 0)):
            i = columns[u, p]
            for q in range(p):
                j = columns[u, q]
                entries[u, p, q] = entries[u, q, p] = scale[i] * read_entry(i, j, buffer, n, width) * scale[j]
    return entries


def compare_vectors(columns: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of all pairs of each list, lists × depth × depth; 0 with vectors of length 0."""
    gathered = vectors[np.maximum(columns, 0)].astype(np.float32)
    lengths = np.sqrt(np.einsum("udk,udk->ud", gathered, gathered))
    gathered /= np.where(lengths == 0, 1, lengths)[:, :, None]
    return gathered @ gathered.transpose(0, 2, 1)
