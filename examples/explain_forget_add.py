# %% [markdown]
# # Explain, forget, add
#
# **Somebody asks to be forgotten. Does the model really forget, without being trained again?**

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
recipe = gr.EASE(l2=200)
model = recipe.fit(events)
somebody = model.users[7]

# %% [markdown]
# First, what the model knows. An explanation splits the score of an item into what each item of the history
# contributes.

# %%
history = list(model.history(somebody))
best = model.recommend([somebody], k=1).items[0][0]
explanation = model.explain(history, best)
print(explanation)

# %% [markdown]
# Forgetting a user is a low-rank change of the inverse. The new model is the one that a fit without this user would
# give; the old one stays as it is.

# %%
started = time.perf_counter()
forgotten = model.forget_users([somebody])
print(f"forgotten in {time.perf_counter() - started:.3f} s")
assert somebody not in forgotten.users

others = events.take(np.array([row for row, user in enumerate(events.users.tolist()) if user != somebody]))
fitted_again = recipe.fit(others)
difference = abs(forgotten.weights() - fitted_again.weights()).max()
print(f"largest difference from a new fit: {difference:.1e}")
assert difference < 1e-4

# %% [markdown]
# Adding works the same way, for users who arrive later.

# %%
back = forgotten.add_users(events.take(np.array([events.users.tolist().index(somebody)])))
assert abs(back.weights() - model.weights()).max() < 1e-4

# %% [markdown]
# ## The answer
#
# Yes. Left: what the user had changed in the model, weight by weight. Right: after forgetting, nothing of it is left:
# the weights are those of a model that has never seen this user.

# %%
rng = np.random.default_rng(0)
sample = tuple(rng.integers(0, len(model.items), (2, 4000)))
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True, layout="constrained")
exact = fitted_again.weights()[sample]
for axis, fitted, title in zip(axes, (model, forgotten), ("before", "after forgetting"), strict=True):
    axis.plot(exact, (fitted.weights()[sample] - exact), ".", markersize=2, rasterized=True)
    axis.set_title(title)
    axis.set_xlabel("weight in a model without the user")
axes[0].set_ylabel("difference from it")
figure.savefig("explain_forget_add.svg", metadata={"Date": None}, dpi=144)
