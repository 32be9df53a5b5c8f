# %% [markdown]
# # Kinds of events, time and dislikes
#
# **My log says more than who touched what. What do I pass, and does it help?**

# %%
import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import gramian as gr

# %% [markdown]
# ## Several kinds of events
#
# A small shop: users view items of their two tastes, and buy a few of them.

# %%
rng = np.random.default_rng(0)
tastes = rng.dirichlet([0.3] * 6, 400) @ rng.dirichlet([0.1] * 120, 6)
viewed, bought = rng.random(tastes.shape) < 12 * tastes, rng.random(tastes.shape) < 4 * tastes
rows = [
    pl.DataFrame(dict(zip(("user", "item"), np.nonzero(part), strict=True))).with_columns(event=pl.lit(kind))
    for kind, part in (("view", viewed), ("buy", bought))
]
shop = gr.Interactions.of(pl.concat(rows), kind="event", kinds=["view", "buy"])
print(shop)

split = gr.split.strong(shop, seed=0)
model = gr.MultiBehaviorEASE(l2=30, other_l2=100).fit(split.train)
user = model.users[0]
best = model.recommend([user], k=1).items[0][0]
print(model.explain(model.history(user), best))

# %% [markdown]
# An explanation says which kind of event carried the item: `.by_kind` splits each contribution. The same purchases
# predicted from purchases alone, and from kinds added up with guessed weights:


# %%
def evaluate(recipe, change):
    part = gr.Split(change(split.train), change(split.fold_in), split.target)
    return gr.evaluate(recipe.fit(part.train), part, ["ndcg@10"])


reports = {
    "purchases alone": evaluate(gr.EASE(l2=30), lambda events: events.of_kind("buy")),
    "view .2 + buy 1": evaluate(gr.EASE(l2=30), lambda events: events.with_kind_weights({"view": 0.2, "buy": 1})),
    "kinds kept apart": gr.evaluate(model, split, ["ndcg@10"]),
}
print({name: round(report["ndcg@10"], 4) for name, report in reports.items()})

# %% [markdown]
# ## Time
#
# The last movie of each user, from the movies before it: without time, with weights that halve with age, and with a
# model of sequences.

# %%
movies = gr.datasets.load("movielens", min_value=4).k_core(20)
last = gr.split.leave_last(movies)


def decay(half_life):
    train, fold_in = (events.decayed(half_life, now=last.fold_in.times.max()) for events in (last.train, last.fold_in))
    return gr.Split(train, fold_in, last.target)


assert decay(float("inf")).train.fingerprint == last.train.fingerprint  # no decay
recipe = gr.EASE(l2=100)
times = {
    "no time": gr.evaluate(recipe.fit(last.train), last, ["ndcg@20"]),
    "half-life 3 y": gr.evaluate(recipe.fit(decay("3y").train), decay("3y"), ["ndcg@20"]),
    "TALE": gr.evaluate(gr.TALE(l2=100, recency=20).fit(last.train), last, ["ndcg@20"]),
}
print({name: round(report["ndcg@20"], 4) for name, report in times.items()})

# %% [markdown]
# ## Dislikes
#
# Ratings of 4 and more are likes, of 2 and less dislikes. EASE takes them as −1; a model without a use for them says
# so.

# %%
signed = gr.datasets.load("movielens", min_value=4, max_dislike=2).k_core(20)
print(signed)
picky = gr.EASE(l2=100).fit(signed)
liked, disliked = picky.items[0], picky.items[1]
print(picky.recommend_for([{liked: 1, disliked: -1}], k=3).titles[0])
try:
    gr.ItemKNN().fit(signed)
except gr.errors.InvalidInput as error:
    print(error)

# %% [markdown]
# ## The answer
#
# Pass `kind=`, `time=` or `max_dislike=` when you read the events, and measure on held-out users. Here views help to predict
# purchases. Whether time helps depends on the data: measure it on a split by time.

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), constrained_layout=True)
for axis, title, results in zip(axes, ("kinds, ndcg@10", "time, ndcg@20"), (reports, times), strict=True):
    means = [next(iter(report.mean.values())) for report in results.values()]
    errors = [next(iter(report.stderr.values())) for report in results.values()]
    axis.barh(list(results), means, xerr=errors, color="#4878a8")
    axis.set_title(title)
figure.savefig("signals.svg")
