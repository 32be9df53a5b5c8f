# %% [markdown]
# # First recommendations
#
# **What do I recommend to somebody who liked *Star Wars* and *The Terminator*, and why?**
#
# A table of ratings is bundled with the package. A rating of 4 or more counts as a like; nothing else is used.

# %%
import matplotlib.pyplot as plt

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
print(events)

# %% [markdown]
# EDLAE is a linear autoencoder: it learns to reconstruct hidden likes from the others. There is no training loop. The
# fit solves for the exact optimum.

# %%
model = gr.EDLAE(dropout=0.3, l2=200).fit(events)

# %% [markdown]
# A history is a list of items. The person need not be in the data. `find_items` accepts ids and titles.

# %%
history = model.catalog.find_items(["Star Wars: Episode IV - A New Hope (1977)", "Terminator, The (1984)"])
lists = model.recommend_for([history], k=8)
for title, score in zip(lists.titles[0], lists.scores[0], strict=True):
    print(f"{score:.3f}  {title}")

# %% [markdown]
# A score is a sum over the history, so every recommendation comes with its reasons.

# %%
reasons = [model.explain(history, item) for item in lists.items[0]]
assert all(abs(sum(reason.values()) - score) < 1e-4 for reason, score in zip(reasons, lists.scores[0], strict=True))

# %% [markdown]
# ## The answer
#
# The list, and how much of each score comes from which movie.

# %%
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
start = [0.0] * len(reasons)
for item in history:
    lengths = [reason[item] for reason in reasons]
    axes.barh(lists.titles[0], lengths, left=start, label=model.catalog.title_of(model.catalog.column(item)))
    start = [a + b for a, b in zip(start, lengths, strict=True)]
axes.invert_yaxis()
axes.set_xlabel("score")
figure.legend(loc="outside upper right", title="because of", frameon=False, ncols=2)
figure.savefig("first_recommendations.svg", metadata={"Date": None})
