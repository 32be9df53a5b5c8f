"""The entries of interactions by user id and item id."""


def pairs(events):
    """(user id, item id) of every entry, in the order of the matrix."""
    return list(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))


def pair_set(events):
    return set(pairs(events))


def entries(events):
    """The value of every (user id, item id)."""
    return dict(zip(pairs(events), events.matrix.data.tolist(), strict=True))
