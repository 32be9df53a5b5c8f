# %% [markdown]
# # Items that nobody has touched
#
# **A new movie arrives today. To whom do I recommend it, and why?**

# %%
import matplotlib.pyplot as plt
import numpy as np

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
features = gr.Features.of_catalog(events.catalog, tags=True, titles=True)
print(features)

# %% [markdown]
# A split that holds out whole items shows what features are worth. A tenth of the movies is untouched in training; the
# targets are interactions with these and some others. Parameters are chosen on the validation part.

# %%
split = gr.split.cold_items(events.with_features(features), seed=0)
space = {"l2": [100, 300], "feature_weight": [0, 10, 100]}
search = gr.tune(gr.CEASE, split.validation, space, metric="ndcg@20")
print(search.recipe)

with_features, without = search.recipe.fit(split.train), gr.EASE(l2=search.recipe.l2).fit(split.train)
reports = {
    name: gr.evaluate_by_popularity(model, split, ["ndcg@20"], within_group=True)
    for name, model in {"EASE": without, "CEASE": with_features}.items()
}
for group in ("cold", "tail", "head"):
    comparison = reports["CEASE"][group].compare(reports["EASE"][group], "ndcg@20")
    print(f"{group}: {comparison.difference:+.4f} ± {comparison.stderr:.4f}, p = {comparison.p_value:.2g}")

# %% [markdown]
# A model in use takes new items in as they come. The result is the model that a new fit would give, without a new inverse.

# %%
new_items = events.items.tolist()[-20:]
known = np.flatnonzero(~np.isin(events.matrix.indices, events.items.positions(new_items)))
old = events.keep(np.isin(np.arange(events.n_interactions), known)).compact()
new = features.take(new_items)
titles = dict(zip(events.items.tolist(), events.titles, strict=True))

model = search.recipe.fit(old.with_features(features.take(old.items.tolist())))
model = model.add_items(new, titles={item: titles[item] for item in new_items})
lists = model.recommend_for([[260, 1196, 1210]], k=3, allow=new_items)  # three Star Wars movies
print(lists.titles[0])

# %% [markdown]
# An explanation takes the score of the new item apart in two ways: by the items of the history, and by its own features.

# %%
explanation = model.explain([260, 1196, 1210], lists.items[0][0])
print(explanation)
assert np.isclose(sum(explanation.features.values()), explanation.score, atol=1e-4)

# %% [markdown]
# ## The answer
#
# To those whose history shares features with it. Without features, a model cannot tell cold items apart; with them, it
# can, and the other items gain a little too.

# %%
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
groups = ["cold", "tail", "head"]
for offset, (name, by_group) in zip((-0.2, 0.2), reports.items(), strict=True):
    means = [by_group[group]["ndcg@20"] for group in groups]
    errors = [by_group[group].stderr["ndcg@20"] for group in groups]
    axis.bar(np.arange(3) + offset, means, 0.38, yerr=errors, label=name)
axis.set_xticks(range(3), [f"{group} items" for group in groups])
axis.set_ylabel("ndcg@20 among the items of the group")
axis.legend()
figure.savefig("cold_items.svg", metadata={"Date": None})
