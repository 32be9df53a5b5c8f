# %% [markdown]
# # Choosing a model honestly
#
# **Which model is best on my data, and is the difference real?**
#
# Honest means: test users are held out of everything, parameters are chosen without them, every model gets a search,
# and a difference counts only if it is larger than chance.

# %%
import matplotlib.pyplot as plt

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
split = gr.split.strong(events, validation_users=0.2, test_users=0.2, seed=0)
metric = "ndcg@20"

# %% [markdown]
# Every model is searched on the validation users. Whatever points have in common is computed once, so that the search
# takes seconds.

# %%
spaces = {
    gr.EASE: {"l2": [30, 100, 300, 1000]},
    gr.DLAE: {"dropout": [0.2, 0.5], "l2": [30, 100, 300, 1000]},
    gr.EDLAE: {"dropout": [0.2, 0.5], "l2": [30, 100, 300, 1000]},
    gr.RegularizedPCA: {"rank": [16, 32, 64, 128], "l2": [0, 3, 10, 20]},
}
searches = {model.__name__: gr.tune(model, split.validation, space, metric=metric) for model, space in spaces.items()}
recipes = {"Popularity": gr.Popularity()} | {name: search.recipe for name, search in searches.items()}
for recipe in recipes.values():
    print(recipe)

# %% [markdown]
# The chosen recipes meet the test users once.

# %%
reports = {name: gr.evaluate(recipe.fit(split.train), split, metrics=[metric]) for name, recipe in recipes.items()}
comparison = gr.compare(reports, metric)
print(comparison)
assert comparison.behind["Popularity"].p_value < 0.01

# %% [markdown]
# ## The answer
#
# Models that cannot be told apart from the best one are blue, the others grey. The bars are standard errors over users.
# They are wide, because there are few test users; the paired test behind the colours sees more than they do.

# %%
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
names = sorted(reports, key=lambda name: reports[name][metric])
equal = {comparison.best, *comparison.tied}
for row, name in enumerate(names):
    colour = "tab:blue" if name in equal else "tab:gray"
    axes.errorbar(reports[name][metric], row, xerr=reports[name].stderr[metric], fmt="o", capsize=3, color=colour)
axes.set_yticks(range(len(names)), names)
axes.set_xlabel(f"{metric} on {split.target.n_users} test users")
axes.grid(axis="x", alpha=0.3)
figure.savefig("choosing_a_model.svg", metadata={"Date": None})
