# %% [markdown]
# # A model of your own
#
# **How much code is a new model, and is mine any good?**
#
# The model: the cosine between two items' columns, with a power that decides how much popular items are scaled down.

# %%
import matplotlib.pyplot as plt
import numpy as np

import gramian as gr
from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe
from gramian.models.scorers import SymmetricWeights


@gr.register
@configurable
class PowerCosine(GramRecipe):
    """W_ij = S_ij / (s_i s_j)^power off the diagonal, with S = XᵀX and s = diag(S)."""

    power: float = param(
        0.5, "how much popular items are scaled down", at_least=0, below=1, tries=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    )

    def solve(self, gram: Gram, overwrite: bool) -> SymmetricWeights:
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        popularity = np.maximum(matrix.diagonal(), 1)
        matrix.scale(popularity**-self.power)
        return SymmetricWeights(matrix, np.ones(matrix.n), -matrix.diagonal())


# %% [markdown]
# That is all. The class is a model like any other: it is fitted, searched, evaluated, saved, loaded, explained and
# served.

# %%
events = gr.datasets.load("movielens", min_value=4).k_core(10)
split = gr.split.strong(events, validation_users=0.2, test_users=0.2, seed=0)
search = gr.tune(PowerCosine, split.validation, metric="ndcg@20")
print(search)

model = search.fit(split.train)
model.save("cosine")
history = model.items[:2]
assert gr.load("cosine").recommend_for([history], k=5) == model.recommend_for([history], k=5)

# %% [markdown]
# And is it any good? Against EASE, which looks at all items at once and not at pairs, on the same users:

# %%
ease = gr.tune(gr.EASE, split.validation, {"l2": [30, 100, 300, 1000]}, metric="ndcg@20")
reports = {"PowerCosine": gr.evaluate(model, split), "EASE": gr.evaluate(ease.fit(split.train), split)}
comparison = gr.compare(reports, "ndcg@20")
print(comparison)

# %% [markdown]
# ## The answer
#
# About ten lines of code. The power matters, and the plain cosine (0.5) is the best of its kind. EASE, the line, is far ahead
# of all of them: pairs of items say less than all items at once.

# %%
points = search.frame().sort("power")
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
axes.plot(points["power"], points["ndcg@20"], "o-", label="PowerCosine")
axes.axhline(ease.results[0].value, color="tab:orange", label="EASE")
axes.set_xlabel("power")
axes.set_ylabel("ndcg@20 on validation users")
axes.legend(frameon=False)
axes.grid(alpha=0.3)
figure.savefig("own_model.svg", metadata={"Date": None})
