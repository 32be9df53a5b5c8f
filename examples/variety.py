# %% [markdown]
# # Variety, and what it costs
#
# **How much accuracy do more varied lists cost, and why is my favourite film not in the list?**

# %%
import matplotlib.pyplot as plt

import gramian as gr

events = gr.datasets.load("movielens", min_value=4).k_core(10)
split = gr.split.strong(events, test_users=0.3, seed=0)
model = gr.EASE(l2=200).fit(split.train)

# %% [markdown]
# A stage reorders the model's best hundred items before the list is cut, and tells what it moved and why.

# %%
history = [260, 1196, 1210]  # the first Star Wars trilogy
lists = model.recommend_for([history], k=5, rerank=gr.rerank.MMR(0.4, "tags"))
for title, was in zip(lists.titles[0], lists.from_ranks(), strict=True):
    print(f"{title}  (was {was})")
for move in lists.moves()[:3]:
    print(f"{move.title}: {move.from_rank} → {move.to_rank}, {move.reason}")

# %% [markdown]
# An item that is missing has a rank, a score that it lacks, and often a small change of the history that would bring it in.

# %%
missing = model.recommend_for([history], k=20).items[0][15]
answer = model.explain_missing(history, missing, k=10, pool=None)
print(answer)
assert answer.status == "ranked out"

# %% [markdown]
# Stronger stages make lists more varied. What they cost is measured on the lists that people would see.

# %%
metrics = ["ndcg@10", "intra_list_diversity@10", "calibration_error@10"]
stages = {
    "MMR by tags": [gr.rerank.MMR(d, "tags") for d in (0.1, 0.2, 0.3, 0.5)],
    "calibration": [gr.rerank.Calibration(s) for s in (0.5, 0.8, 0.9, 0.97)],
}
plain = gr.evaluate(model, split, metrics)
curves = {name: [gr.evaluate(model, split, metrics, rerank=stage) for stage in line] for name, line in stages.items()}
assert curves["MMR by tags"][-1]["intra_list_diversity@10"] > plain["intra_list_diversity@10"]
assert curves["calibration"][-1]["calibration_error@10"] < plain["calibration_error@10"]

# %% [markdown]
# ## The answer
#
# Little, if you are moderate: the first steps to the right cost almost nothing, and the last ones a lot. Calibration moves the
# tags of the list towards those of the history, so it makes lists less one-sided without making them arbitrary.

# %%
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, reports in curves.items():
    points = [plain, *reports]
    diversity = [report["intra_list_diversity@10"] for report in points]
    axes.plot(diversity, [report["ndcg@10"] for report in points], "o-", label=name)
axes.set_xlabel("intra-list diversity (tags)")
axes.set_ylabel("ndcg@10")
axes.legend()
figure.savefig("variety.svg", metadata={"Date": None})
