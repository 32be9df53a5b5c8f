"""Re-ranking from its definitions, one list at a time, in loops over Python lists.

A list is a list of columns, best first; `relevance` has a number for each rank. Every function returns the new list.
"""

from collections import Counter
from math import log


def pick_greedily(candidates, k, value):
    """Pick the best by value(item, picked) k times; the rest follow by their value then. Ties keep the order."""
    picked, rest = [], list(candidates)
    while rest and len(picked) < k:
        best = max(rest, key=lambda item: (value(item, picked), -candidates.index(item)))
        picked.append(best)
        rest.remove(best)
    return picked + sorted(rest, key=lambda item: -value(item, picked))


def mmr(candidates, relevance, k, similarity, diversity):
    """Carbonell and Goldstein (1998), with similarities cut at 0 and divided by the largest of two different candidates."""
    largest = max((similarity[i][j] for i in candidates for j in candidates if i != j), default=0)

    def value(item, picked):
        close = max((max(similarity[item][other], 0) / largest for other in picked), default=0) if largest > 0 else 0
        return (1 - diversity) * relevance[candidates.index(item)] - diversity * close

    return pick_greedily(candidates, k, value)


def shares(items, tags, weights=None):
    """The shares of tags in a list or a history; items without tags do not count."""
    total = Counter()
    for item in items:
        for tag in tags[item]:
            total[tag] += (1 if weights is None else weights[item]) / len(tags[item])
    mass = sum(total.values())
    return {tag: share / mass for tag, share in total.items()} if mass else {}


def divergence(target, listed, smoothing):
    """KL(p ‖ q̃), q̃ = (1 − smoothing) q + smoothing p   (Steck 2018, Eq. 6 and 7)."""
    mixed = {tag: (1 - smoothing) * listed.get(tag, 0) + smoothing * p for tag, p in target.items()}
    return sum(p * log(p / mixed[tag]) for tag, p in target.items() if p > 0)


def calibration_value(listed, candidates, relevance, tags, target, strength, smoothing):
    """What Steck (2018) maximises greedily, Eq. 8."""
    total = sum(relevance[candidates.index(item)] for item in listed)
    return (1 - strength) * total - strength * divergence(target, shares(listed, tags), smoothing)


def popularity_penalty(candidates, relevance, popularity, strength):
    most = log(1 + max(popularity))
    values = [r - strength * log(1 + popularity[c]) / most for r, c in zip(relevance, candidates, strict=True)]
    return [candidates[p] for p in sorted(range(len(candidates)), key=lambda p: -values[p])]


def max_per_tag(candidates, tags, limit, fill=True):
    counts, kept, late = Counter(), [], []
    for item in candidates:
        if any(counts[tag] >= limit for tag in tags[item]):
            late.append(item)
        else:
            counts.update(tags[item])
            kept.append(item)
    return kept + late if fill else kept


def reserved_slots(candidates, tags, tag, slots, rank):
    above, below = candidates[: rank - 1], candidates[rank - 1 :]
    chosen = [item for item in below if tag in tags[item]][:slots]
    return above + chosen + [item for item in below if item not in chosen]
