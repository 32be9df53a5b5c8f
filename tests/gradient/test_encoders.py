"""Encoders: vectors and gradients against the papers' formulas on dense matrices, and products along the edges of a graph."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gradient.cases import EVENTS, M, N, X, small_backbones
from gradient.naive_encoders import naive_vectors
from gramian.gradient.encoders import ENCODERS, encode_arrays, make_encoder
from gramian.gradient.graph import EdgePattern, edge_products, multiply, sum_along_edges, sum_by_index

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
    for ours, theirs, leaves in ((product, expected, (values, vectors)), (products, expected_products, (left, right))):
        gradient = torch.from_numpy(rng.standard_normal(ours.shape))
        for a, b in zip(*(torch.autograd.grad(y, leaves, gradient, retain_graph=True) for y in (ours, theirs)), strict=True):
            torch.testing.assert_close(a, b)
