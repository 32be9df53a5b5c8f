"""Encoders: vectors and gradients against the papers' formulas on dense matrices, and products along the edges of a graph."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gradient.cases import EVENTS, M, N, X, small_backbones
from gradient.naive_encoders import naive_vectors
from gramian.gradient import DGCF, NGCF, SGL, YouTubeNet
from gramian.gradient.encoders import ENCODERS, encode_arrays, make_encoder
from gramian.gradient.graph import EdgePattern, edge_products, multiply, sum_along_edges, sum_by_index, sum_from_columns
from gramian.gradient.graph_encoders import distance_correlation
from gramian.gradient.random_walks import sample_neighbours

CPU = torch.device("cpu")
DENSE = torch.from_numpy((X.toarray() > 0).astype(np.float64))
each_backbone = pytest.mark.parametrize("backbone", small_backbones(), ids=lambda backbone: type(backbone).__name__)


def random_tables(backbone, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in backbone.shapes(M, N).items()}


def test_every_backbone_has_an_encoder_and_a_small_case():
    assert {type(backbone) for backbone in small_backbones()} == set(ENCODERS)


@each_backbone
def test_vectors_are_those_of_the_papers_formula(backbone):
    arrays = random_tables(backbone)
    vectors = encode_arrays(backbone, EVENTS.matrix, arrays)
    users, items = naive_vectors(backbone, {name: torch.from_numpy(array) for name, array in arrays.items()}, DENSE)
    np.testing.assert_allclose(vectors["users"], users, atol=1e-10)
    np.testing.assert_allclose(vectors["items"], items, atol=1e-10)


@each_backbone
@pytest.mark.parametrize("all_items", [True, False], ids=["all items", "some items"])
def test_gradients_by_vectors_go_back_to_the_tables(backbone, all_items):
    rng = np.random.default_rng(1)
    leaves = {name: torch.from_numpy(array).requires_grad_() for name, array in random_tables(backbone).items()}
    users, items = torch.tensor([40, 3, 17]), None if all_items else torch.tensor([5, 0, 21, 8])
    encoder = make_encoder(backbone, EVENTS.matrix, CPU, torch.float64)
    encoder.generator = torch.Generator().manual_seed(0)  # as in training
    p, q = encoder.encode({name: leaf.detach() for name, leaf in leaves.items()}, users, items)
    by_p, by_q = (torch.from_numpy(rng.standard_normal(vectors.shape)) for vectors in (p, q))
    gradients = {"users": (users, by_p), "items": (items, by_q)}
    encoder.backpropagate(gradients)
    naive_users, naive_items = naive_vectors(backbone, leaves, DENSE)
    naive_p, naive_q = naive_users[users], naive_items if all_items else naive_items[items]
    np.testing.assert_allclose(p, naive_p.detach(), atol=1e-10)
    np.testing.assert_allclose(q, naive_q.detach(), atol=1e-10)
    ((naive_p * by_p).sum() + (naive_q * by_q).sum()).backward()
    for name, leaf in leaves.items():
        rows, gradient = gradients[name]
        expected = leaf.grad if rows is None else leaf.grad[rows]
        np.testing.assert_allclose(gradient, expected, atol=1e-9, err_msg=name)
        if rows is not None:
            assert not np.delete(leaf.grad.numpy(), rows.numpy(), axis=0).any(), name


def test_products_along_edges_and_their_gradients():
    rng = np.random.default_rng(3)
    x = sp.csr_array(X[:20] * (np.arange(20) != 7)[:, None])  # a row without edges
    pattern = EdgePattern.of(x, CPU)
    values, vectors, left, right = (
        torch.from_numpy(rng.standard_normal(shape)).requires_grad_() for shape in (x.nnz, (N, 5), (20, 5), (N, 5))
    )
    dense = torch.zeros(20, N, dtype=torch.float64).index_put((pattern.rows, pattern.columns), values)
    product, products = multiply(pattern, values, vectors), edge_products(pattern, left, right)
    expected, expected_products = dense @ vectors, (left @ right.T)[pattern.rows, pattern.columns]
    torch.testing.assert_close(product, expected)
    torch.testing.assert_close(products, expected_products)
    torch.testing.assert_close(sum_by_index(pattern, values, vectors), expected)
    rows = torch.tensor([4, 7, 0])
    torch.testing.assert_close(sum_along_edges(pattern, values, vectors, rows), expected[rows].detach())
    torch.testing.assert_close(sum_by_index(pattern, values, vectors, rows), expected[rows])
    columns = torch.tensor([6, 20, 1])
    only = torch.zeros_like(vectors).index_copy(0, columns, vectors[columns])
    few = sum_from_columns(pattern, values.detach(), columns, vectors[columns].detach())
    torch.testing.assert_close(few, (dense @ only).detach())
    for ours, theirs, leaves in ((product, expected, (values, vectors)), (products, expected_products, (left, right))):
        gradient = torch.from_numpy(rng.standard_normal(ours.shape))
        for a, b in zip(*(torch.autograd.grad(y, leaves, gradient, retain_graph=True) for y in (ours, theirs)), strict=True):
            torch.testing.assert_close(a, b)


def test_random_walks_visit_neighbours_by_their_probabilities():
    """The first and the third step of a walk visit a column, with probabilities P and P·Q·P; Q is from columns to rows."""
    visits = sample_neighbours(X, N, 20_000).toarray()
    to_columns = X.toarray() / X.sum(axis=1)[:, None]
    to_rows = (X.toarray() / X.sum(axis=0)).T
    np.testing.assert_allclose(visits, (to_columns + to_columns @ to_rows @ to_columns) / 2, atol=0.01)
    few = sample_neighbours(X, 3, 20_000)
    assert np.diff(few.indptr).max() == 3
    np.testing.assert_allclose(few.sum(axis=1), 1)
    lowest_kept = np.where(few.toarray() > 0, visits, np.inf).min(1)
    assert ((visits > lowest_kept[:, None]).sum(1) < 3).all()


def test_views_of_sgl_drop_edges_and_their_contrast_is_info_nce():
    backbone = SGL(rank=6, n_layers=2, dropout=0.4, temperature=0.3, weight=0.7)
    encoder = make_encoder(backbone, EVENTS.matrix, CPU, torch.float64)
    encoder.start_epoch(torch.Generator().manual_seed(0))
    leaves = {name: torch.from_numpy(array).requires_grad_() for name, array in random_tables(backbone).items()}
    users, items = torch.tensor([40, 3, 17]), torch.tensor([5, 0, 21, 8])
    p, q = encoder.encode(leaves, users, items)
    gradients = {"users": (users, torch.zeros_like(p)), "items": (items, torch.zeros_like(q))}
    value = encoder.backpropagate(gradients)
    views = [view.to_users.to_csr().toarray() for view in encoder.views]
    assert all((view <= X.toarray()).all() and abs(view.sum() / X.sum() - 0.6) < 0.1 for view in views)
    assert (views[0] != views[1]).any()
    vectors = [naive_vectors(backbone, leaves, torch.from_numpy(view.astype(np.float64))) for view in views]
    expected = 0
    for side, rows in enumerate((users.tolist(), items.tolist())):
        for v in rows:
            cosines = [torch.cosine_similarity(vectors[0][side][v], vectors[1][side][w], dim=0) / 0.3 for w in rows]
            own = cosines[rows.index(v)].exp()
            expected = expected - 0.7 / len(rows) * torch.log(own / sum(cosine.exp() for cosine in cosines))
    assert float(value) == pytest.approx(float(expected.detach()))
    expected.backward()
    for name, leaf in leaves.items():
        np.testing.assert_allclose(gradients[name][1], leaf.grad, atol=1e-9, err_msg=name)


def test_dgcf_adds_the_distance_correlation_of_its_intents():
    backbone = DGCF(rank=6, n_intents=3, independence=0.5)
    encoder = make_encoder(backbone, EVENTS.matrix, CPU, torch.float64)
    encoder.generator = torch.Generator()
    tables = {name: torch.from_numpy(array) for name, array in random_tables(backbone).items()}
    users, items = torch.tensor([40, 3, 17]), torch.tensor([5, 0, 21, 8])
    p, q = encoder.encode(tables, users, items)
    value = encoder.backpropagate({"users": (users, torch.zeros_like(p)), "items": (items, torch.zeros_like(q))})
    parts = np.split(np.concatenate([p, q]), 3, axis=1)
    assert float(value) == pytest.approx(0.5 * sum(naive_correlation(parts[a], parts[b]) for a, b in ((0, 1), (0, 2), (1, 2))))


def naive_correlation(x, y):
    """The distance correlation of paired rows, in loops over pairs."""
    n, centered = len(x), []
    for rows in (x, y):
        distance = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in rows] for a in rows])
        mean = [sum(row) / n for row in distance]
        centered.append([[distance[i][j] - mean[i] - mean[j] + sum(mean) / n for j in range(n)] for i in range(n)])

    def covariance(a, b):
        return np.sqrt(sum(a[i][j] * b[i][j] for i in range(n) for j in range(n)) / n**2)

    a, b = centered
    return covariance(a, b) / np.sqrt(covariance(a, a) * covariance(b, b))


def test_distance_correlation_is_1_of_a_similarity_and_small_of_independent_rows():
    x, y = (torch.from_numpy(np.random.default_rng(seed).standard_normal((200, 2))) for seed in (0, 1))
    assert float(distance_correlation(x, 3 * x.flip(1) + 2)) == pytest.approx(1)
    assert float(distance_correlation(x, y)) < 0.3


def test_youtubenet_leaves_the_items_to_be_predicted_out_of_the_history():
    backbone = YouTubeNet(rank=6, hidden=10)
    encoder = make_encoder(backbone, EVENTS.matrix, CPU, torch.float64)
    tables = {name: torch.from_numpy(array) for name, array in random_tables(backbone).items()}
    held_out = encoder.held_out = torch.tensor([2, 9, 30])
    remaining = DENSE.clone()
    remaining[encoder.histories.rows[held_out], encoder.histories.columns[held_out]] = 0
    users, _ = encoder.encode(tables, None, None)
    np.testing.assert_allclose(users, naive_vectors(backbone, tables, remaining)[0], atol=1e-12)
    encoder.held_out = None
    np.testing.assert_allclose(encoder.encode(tables, None, None)[0], naive_vectors(backbone, tables, DENSE)[0], atol=1e-12)


def test_ngcf_drops_messages_in_training_alone():
    backbone = NGCF(rank=6, n_layers=1, dropout=0.5)
    encoder = make_encoder(backbone, EVENTS.matrix, CPU, torch.float64)
    tables = {name: torch.from_numpy(array) for name, array in random_tables(backbone).items()}
    whole, _ = encoder.encode(tables, None, None)
    encoder.start_epoch(torch.Generator().manual_seed(0))
    dropped, _ = encoder.encode(tables, None, None)
    is_kept = dropped[:, 6:] != 0
    assert abs(float(is_kept.double().mean()) - 0.5) < 0.1
    torch.testing.assert_close(dropped[:, 6:][is_kept], 2 * whole[:, 6:][is_kept])
    torch.testing.assert_close(dropped[:, :6], whole[:, :6])
