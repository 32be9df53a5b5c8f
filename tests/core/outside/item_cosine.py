"""A model, a scorer and a metric of somebody else, in a file of their own: what a plugin looks like."""

import numpy as np

import gramian as gr
from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe
from gramian.core.scorer import Scorer


class Cosines(Scorer):
    """Dense item-item weights."""

    name = "outside-cosines"

    def __init__(self, matrix):
        self.matrix = matrix

    @property
    def n_items(self):
        return len(self.matrix)

    def panels(self, histories):
        yield 0, histories @ self.matrix

    def save(self):
        return {}, {"matrix": self.matrix}

    @staticmethod
    def load(facts, arrays):
        return Cosines(arrays["matrix"])


@configurable
class ItemCosine(GramRecipe):
    """Cosine similarity of items, to a power."""

    power: float = param(1.0, "power of the cosine; usually 0.5 to 3", at_least=0, tries=(0.5, 1, 2))

    def solve(self, gram: Gram, overwrite: bool) -> Cosines:
        s = gram.matrix.dense()
        length = np.sqrt(np.maximum(np.diag(s), 1e-9))
        return Cosines(((s / length / length[:, None]) ** self.power).astype(np.float32))


def reciprocal_hits(lists, k):
    return 1 / (1 + lists.n_hits(k))


for entry in (ItemCosine, Cosines, gr.Metric("reciprocal_hits", reciprocal_hits)):
    gr.register(entry)
