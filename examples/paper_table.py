# %% [markdown]
# # A paper's table
#
# **A paper says that denoising improves on EASE. How do I write its table down, run it, and check the claim?**
#
# Steck (2020) introduces EDLAE and reports that it beats EASE and DLAE. His data sets are large; the same table on the
# bundled data takes seconds, and shows how such a check is done. The tables of the papers themselves are run by
# `gramian benchmark`.

# %%
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt

Path("table.toml").write_text("""
title = "EASE, DLAE and EDLAE on MovieLens"
metrics = {"NDCG@20" = "ndcg@20", "Recall@20" = "recall@20"}
choose = "ndcg@20"

[data.movielens]
split = "strong"
options = {validation_users = 0.2, test_users = 0.2}
min_value = 4
k_core = 10

[[model]]
name = "Popularity"
recipe = "Popularity"

[[model]]
name = "EASE"
recipe = "EASE"
search = {l2 = [30, 100, 300, 1000]}

[[model]]
name = "DLAE"
recipe = "DLAE"
search = {dropout = [0.2, 0.5, 0.8], l2 = [30, 100, 300]}

[[model]]
name = "EDLAE"
recipe = "EDLAE"
search = {dropout = [0.2, 0.5, 0.8], l2 = [30, 100, 300]}
""")

# %% [markdown]
# The file names the data, the split, the models and the values to try. If it holds published figures (`published =
# {movielens = [0.31, 0.28]}`), they are printed beside ours. Every result goes to a journal, with the versions and the
# machine. A benchmark that was interrupted continues.

# %%
command = [sys.executable, "-m", "gramian", "benchmark", "table.toml", "--journal", "table.jsonl"]
print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

# %%
rows = [json.loads(line) for line in Path("table.jsonl").read_text().splitlines()]
fits = {row["key"]: row for row in rows if row["kind"] == "fit"}
measured = {row["model"]: fits[row["fit"]] for row in rows if row["kind"] == "cell"}
assert set(measured) == {"Popularity", "EASE", "DLAE", "EDLAE"}

# %% [markdown]
# ## The answer
#
# EDLAE is ahead, but its lead over DLAE and EASE is not significant (the p-values above): this data can neither confirm nor
# refute the claim. That is a result, too. `gramian report --journal table.jsonl` makes a page of it.

# %%
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
for offset, metric in ((-0.1, "ndcg@20"), (0.1, "recall@20")):
    axes.errorbar(
        [row["metrics"][metric] for row in measured.values()],
        [n + offset for n in range(len(measured))],
        xerr=[row["stderr"][metric] for row in measured.values()],
        fmt="o",
        capsize=3,
        label=metric,
    )
axes.set_yticks(range(len(measured)), measured)
axes.set_xlabel("mean over test users, ± one standard error")
axes.grid(axis="x", alpha=0.3)
axes.legend(frameon=False)
figure.savefig("paper_table.svg", metadata={"Date": None})
