"""The encoders' formulas on dense matrices and in loops, from their papers, for autograd to differentiate."""

import scipy.sparse as sp
import torch

from gramian.gradient.random_walks import sample_neighbours


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


def naive_youtubenet(backbone, tables, x):
    users = []
    for history in x:
        code = (history_mean(tables["inputs"], history) @ tables["weight0"] + tables["bias0"]).clamp(min=0)
        users.append(code @ tables["weight1"] + tables["bias1"])
    return torch.stack(users), tables["items"]


def leaky(x):
    return torch.where(x > 0, x, 0.2 * x)


def naive_ngcf(backbone, tables, x):
    """Messages from neighbour w to v: (h_w W + (h_w ⊙ h_v) V)/√(degree_v·degree_w); from v to itself h_v W."""
    a = adjacency(x)
    degree = a.sum(1)
    h = torch.cat([tables["users"], tables["items"]])
    outputs = [h]
    for layer in range(backbone.n_layers):
        weight, interaction = tables[f"weight{layer}"], tables[f"interaction_weight{layer}"]
        rows = []
        for v in range(len(a)):
            total = h[v] @ weight
            for w in torch.nonzero(a[v])[:, 0].tolist():
                total = total + (h[w] @ weight + (h[w] * h[v]) @ interaction) / (degree[v] * degree[w]) ** 0.5
            rows.append(leaky(total))
        h = torch.stack(rows)
        outputs.append(h)
    return split_nodes(torch.cat(outputs, 1), x)


def naive_sgl(backbone, tables, x):
    return naive_lightgcn(backbone, tables, x)


def naive_pinsage(backbone, tables, x):
    matrix = sp.csr_array(x.numpy())
    shares = torch.zeros(sum(x.shape), sum(x.shape), dtype=x.dtype)
    m = len(x)
    for side, block in ((matrix, shares[:m, m:]), (sp.csr_array(matrix.T), shares[m:, :m])):
        block += torch.from_numpy(sample_neighbours(side, backbone.n_neighbours, backbone.n_walks).toarray())
    h = torch.cat([tables["users"], tables["items"]])
    for layer in range(backbone.n_layers):
        rows = []
        for v in range(len(h)):
            total = torch.zeros_like(h[0])
            for w in torch.nonzero(shares[v])[:, 0].tolist():
                message = (h[w] @ tables[f"message_weight{layer}"] + tables[f"message_bias{layer}"]).clamp(min=0)
                total = total + shares[v, w] * message
            row = (torch.cat([h[v], total]) @ tables[f"weight{layer}"] + tables[f"bias{layer}"]).clamp(min=0)
            rows.append(row / row.norm().clamp(min=1e-12))
        h = torch.stack(rows)
    hidden = (h @ tables["hidden_weight"] + tables["hidden_bias"]).clamp(min=0)
    return split_nodes(hidden @ tables["output_weight"], x)


def naive_gat(backbone, tables, x):
    a = adjacency(x)
    h = torch.cat([tables["users"], tables["items"]])
    for layer in range(backbone.n_layers):
        z, rows = h @ tables[f"weight{layer}"], []
        own, other = tables[f"own_attention{layer}"][:, 0], tables[f"attention{layer}"][:, 0]
        for v in range(len(a)):
            around = [v, *torch.nonzero(a[v])[:, 0].tolist()]
            weights = torch.stack([leaky(z[v] @ own + z[w] @ other) for w in around]).softmax(0)
            rows.append(sum(weight * z[w] for weight, w in zip(weights, around, strict=True)))
        h = torch.stack(rows)
        if layer < backbone.n_layers - 1:
            h = torch.where(h > 0, h, h.exp() - 1)
    return split_nodes(h, x)


def naive_dgcf(backbone, tables, x):
    k, layers = backbone.n_intents, [(tables["users"], tables["items"])]
    for _ in range(backbone.n_layers):
        users, items = (part.chunk(k, 1) for part in layers[-1])
        scores = [x.clone() for _ in range(k)]
        for _ in range(backbone.n_steps):
            exponentials = [score.exp() for score in scores]
            new_users, new_items = [], []
            for intent in range(k):
                share = x * exponentials[intent] / sum(exponentials)
                weights = share / (share.sum(1, keepdim=True) * share.sum(0)).sqrt().clamp(min=1e-300)
                new_users.append(weights @ items[intent])
                new_items.append(weights.T @ users[intent])
            scores = [s + u @ i.tanh().T for s, u, i in zip(scores, new_users, items, strict=True)]
        layers.append((torch.cat(new_users, 1), torch.cat(new_items, 1)))
    return sum(users for users, _ in layers), sum(items for _, items in layers)
