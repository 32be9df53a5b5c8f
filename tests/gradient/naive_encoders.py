"""The encoders' formulas on dense matrices and in loops, from their papers, for autograd to differentiate."""

import torch


def naive_vectors(backbone, tables, x):
    """The vectors of all users and items, of tables by name and a dense 0/1 matrix x of users × items."""
    return globals()[f"naive_{type(backbone).__name__.lower()}"](backbone, tables, x)


def adjacency(x):
    """A of the bipartite graph, users first."""
    m, n = x.shape
    a = torch.zeros(m + n, m + n, dtype=x.dtype)
    a[:m, m:], a[m:, :m] = x, x.T
    return a


def normalized_adjacency(x):
    a = adjacency(x)
    scale = a.sum(1).clamp(min=1) ** -0.5
    return scale[:, None] * a * scale


def split_nodes(nodes, x):
    return nodes.split(list(x.shape))


def naive_mf(backbone, tables, x):
    return tables["users"], tables["items"]


def naive_lightgcn(backbone, tables, x):
    layer = total = torch.cat([tables["users"], tables["items"]])
    for _ in range(backbone.n_layers):
        layer = normalized_adjacency(x) @ layer
        total = total + layer
    return split_nodes(total / (backbone.n_layers + 1), x)


def history_mean(vectors, history):
    items = torch.nonzero(history)[:, 0]
    return sum(vectors[i] for i in items) / len(items) if len(items) else torch.zeros_like(vectors[0])


def naive_simplex(backbone, tables, x):
    g, users = backbone.own_weight, []
    for u, history in enumerate(x):
        mean = history_mean(tables["items"], history)
        users.append(g * tables["users"][u] + (1 - g) * (mean @ tables["history_weight"]))
    return torch.stack(users), tables["items"]
