"""What closed forms make cheap: a search over a free axis, leave-one-user-out, forgetting a user, few users. Ratios are
within one run.

python benchmarks/exact.py search     # 6 dropouts × 6 l2 × 16 kept_weights against 36 inverses and scorings
python benchmarks/exact.py leave-out  # every user left out against one evaluation of the same users
python benchmarks/exact.py forget     # one user of a model of 20,000 items against fitting again
python benchmarks/exact.py path       # 30 values of l2 by one eigendecomposition against 30 inverses
python benchmarks/exact.py users      # a fit by the inverse of the users' matrix against that of the items' matrix
"""

import argparse
from unittest.mock import patch

import numpy as np
from journal import append
from measure import seconds

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.evaluation.leave_one_user_out import LeftOutUsers
from gramian.evaluation.metrics import parse_metrics

GRID = {"dropout": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "l2": [10, 30, 100, 300, 1000, 3000]}


def search(n_items: int) -> None:
    """Time a grid by shared fits against 36 separate fits, whose cost is extrapolated from the corners of the grid."""
    split = gr.split.strong(clustered(50_000, n_items, 5_000_000), validation_users=0, test_users=5_000)
    gr.tune(gr.DEQL, split, {"dropout": [0.3], "l2": [100], "kept_weight": [0.5, 0.7]})  # compiles
    gram = gr.Gram.of(split.train)

    def fit_and_evaluate(dropout: float, l2: float) -> None:
        recipe = gr.EDLAE(dropout, l2)
        gr.evaluate(recipe.fit_gram(gram), split, ["ndcg@20"])

    fit_and_evaluate(0.3, 100)  # compiles
    corners = [(p, l2) for p in (0.1, 0.6) for l2 in (10, 3000)]
    before = [seconds(lambda p=p, l2=l2: fit_and_evaluate(p, l2)) for p, l2 in corners]  # type: ignore[misc]
    searches: list[gr.Search] = []
    ours = seconds(lambda: searches.append(gr.tune(gr.DEQL, split, GRID)))
    after = [seconds(lambda p=p, l2=l2: fit_and_evaluate(p, l2)) for p, l2 in corners]  # type: ignore[misc]
    theirs = 36 * float(np.mean(before + after))
    print(searches[0])
    report_ratio(
        "search", ours, theirs, f"36 inverses and scorings at {n_items:,} items", points=len(searches[0].results), items=n_items
    )


def leave_out(n_items: int) -> None:
    """Time leave-one-user-out against one evaluation of the same users."""
    events = clustered(40_000, n_items, 4_000_000)
    left_out = LeftOutUsers.of(events, 0.8, 0)
    users, known = left_out.users, ~left_out.is_target
    split = gr.Split(events, users.keep(known), users.keep(~known))
    rows = np.arange(users.n_users)
    median = float(np.median(np.diff(users.matrix.indptr)))
    for recipe in (gr.EASE(), gr.EDLAE(), gr.DLAE(), gr.DEQL()):
        model = recipe.fit(events)

        def ours(recipe: gr.EASE = recipe, model: gr.Recommender = model) -> None:  # type: ignore[assignment]
            (columns,) = left_out.rank([recipe], model.scorer.inverse, 20, rows)  # type: ignore[attr-defined]
            left_out.task.report(columns, parse_metrics(["ndcg@20"]))

        def theirs(model: gr.Recommender = model) -> None:
            gr.evaluate(model, split, ["ndcg@20"])

        ours()
        theirs()
        times = [(seconds(ours), seconds(theirs)) for _ in range(3)]
        best = [min(column) for column in zip(*times, strict=True)]
        what = f"one evaluation of {users.n_users:,} users (median history {median:.0f})"
        report_ratio(
            f"leave-one-user-out, {type(recipe).__name__}", best[0], best[1], what, items=n_items, median_history=median
        )


def forget(n_items: int) -> None:
    """Time forgetting one user against fitting again."""
    events = clustered(136_000, n_items, 10_000_000)
    warm = clustered(500, 300, 5_000)
    for recipe in (gr.EASE(), gr.EDLAE()):
        recipe.fit(warm).forget_users([0])
        refit = seconds(lambda recipe=recipe: recipe.fit(events))  # type: ignore[misc]
        model = recipe.fit(events)
        ours = min(seconds(lambda at=at, model=model: model.forget_users([at])) for at in range(3))  # type: ignore[misc]
        report_ratio(
            f"forget one user, {type(recipe).__name__}", ours, refit, f"fitting {n_items:,} items again", items=n_items
        )


def path(n_items: int) -> None:
    """Time a path of l2 by one eigendecomposition against one inverse per value."""
    split = gr.split.strong(clustered(50_000, n_items, 2_000_000), validation_users=0, test_users=n_items // 10)
    space = {"l2": [10 * 1.25**i for i in range(30)]}
    small = gr.split.strong(clustered(500, 200, 5_000), validation_users=0, test_users=10)
    gr.tune(gr.EASE, small, space)  # compiles
    gr.tune(gr.EASE, small, {"l2": [1]})
    searches: list[gr.Search] = []
    ours = seconds(lambda: searches.append(gr.tune(gr.EASE, split, space)))
    with patch("gramian.tuning.shared_fits.is_decomposition_cheaper", return_value=False):
        theirs = seconds(lambda: searches.append(gr.tune(gr.EASE, split, space)))
    print(*searches, sep="\n")
    report_ratio("path of 30 l2", ours, theirs, f"30 inverses at {n_items:,} items", items=n_items)


def few_users(n_items: int) -> None:
    """Time a fit of EASE on fewer users than items by both inverses, for several numbers of users."""
    recipe = gr.EASE(l2=100)
    warm = clustered(300, 2_100, 9_000)
    recipe.fit(warm)
    recipe.fit_gram(gr.Gram.of(warm), overwrite=True)  # compiles
    for share in (0.1, 0.3, 0.5, 0.7, 0.8):
        events = clustered(int(share * n_items), n_items, 40 * n_items)
        assert not recipe.needs_dense_gram(events, np.float32)
        ours = seconds(lambda events=events: recipe.fit(events))  # type: ignore[misc]
        theirs = seconds(lambda events=events: recipe.fit_gram(gr.Gram.of(events), overwrite=True))  # type: ignore[misc]
        name = f"{share:.0%} as many users as items"
        report_ratio(name, ours, theirs, f"the inverse of {n_items:,} items", items=n_items, users=events.n_users)


def report_ratio(name: str, ours: float, theirs: float, rival: str, **facts: object) -> None:
    print(f"{name:<32}{ours:8.2f} s   {rival} {theirs:8.2f} s   ratio {ours / theirs:.3f} (1/{theirs / ours:.0f})", flush=True)
    append("exact", {"job": name, "seconds": ours, "rival": rival, "rival_seconds": theirs, "ratio": ours / theirs, **facts})


JOBS = {
    "search": (search, 8_192),
    "leave-out": (leave_out, 8_192),
    "forget": (forget, 20_000),
    "path": (path, 4_096),
    "users": (few_users, 10_000),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--items", type=int)
    arguments = parser.parse_args()
    job, n_items = JOBS[arguments.job]
    job(arguments.items or n_items)
