"""How fit, scoring and memory grow with the catalog.

    python benchmarks/growth.py                  # 2, 5, 10, 20 and 40 thousand items: a quarter of an hour
    python benchmarks/growth.py --plot           # draw docs/growth.svg from the journal (needs matplotlib)

Synthetic interactions: twice as many users as items, 25 interactions each. EASE is fitted, and 10,000 users get their top 20.
A row for each size goes to results/growth.jsonl; the slopes of the lines through them, on log scales, are the exponents.
The memory of scoring is recorded too. It is that of one block of users and does not grow.
"""

import argparse
import time

import numpy as np
from journal import RESULTS, append, rows
from measure import peak_bytes

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.experiments.trial import warm_up

SIZES = (2_000, 5_000, 10_000, 20_000, 40_000)
USERS = 10_000
MEASURES = {
    "fit_seconds": ("seconds to fit", 1.0),
    "score_seconds": ("seconds for the top 20 of 10,000 users", 1.0),
    "fit_bytes": ("MB, peak of the fit", 1e-6),
}


def measure(n: int) -> dict[str, float]:
    """Return the seconds and peak bytes of a fit and of lists, at n items."""
    events = clustered(2 * n, n, 50 * n)
    active = np.flatnonzero(np.diff(events.matrix.indptr))
    histories = events.matrix[np.resize(active, USERS)]
    started = time.perf_counter()
    model, fit_bytes = peak_bytes(lambda: gr.EASE().fit(events))
    fitted = time.perf_counter()
    _, score_bytes = peak_bytes(lambda: model.top_k(histories, 20))
    scored = time.perf_counter()
    times = {"fit_seconds": round(fitted - started, 3), "score_seconds": round(scored - fitted, 3)}
    return {"items": n, "interactions": events.n_interactions} | times | {"fit_bytes": fit_bytes, "score_bytes": score_bytes}


def latest_rows() -> dict[str, np.ndarray]:
    """Return the newest row of every size, by column."""
    by_size = {row["items"]: row for row in rows("growth")}
    return {name: np.array([by_size[n][name] for n in sorted(by_size)], float) for name in ("items", *MEASURES)}


def fit_exponent(n: np.ndarray, values: np.ndarray) -> float:
    """Return the slope on log scales from 5,000 items on; below that, fixed costs dominate."""
    large = n >= 5_000
    return float(np.polyfit(np.log(n[large]), np.log(values[large]), 1)[0])


def plot() -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - not needed for measuring
    from matplotlib.ticker import NullLocator  # noqa: PLC0415

    plt.rcParams["svg.hashsalt"] = "gramian"  # the same file from the same rows
    columns = latest_rows()
    n = columns["items"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    axes[1].loglog(n, 2 * n**2 / 1e6, "k:", lw=1, label="2n² bytes")
    for axis, names in zip(axes, (("fit_seconds", "score_seconds"), ("fit_bytes",)), strict=True):
        for name in names:
            label, unit = MEASURES[name]
            axis.loglog(n, columns[name] * unit, "o-", label=f"{label}: n^{fit_exponent(n, columns[name]):.2f}")
        axis.set_xticks(n, [f"{size / 1000:g}k" for size in n])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("items")
        axis.grid(alpha=0.3)
        axis.set_ylim(top=8 * axis.get_ylim()[1])  # room for the legend
        axis.legend(frameon=False, loc="upper left")
    figure.savefig(RESULTS.parents[1] / "docs" / "growth.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--plot", action="store_true")
    arguments = parser.parse_args()
    if not arguments.plot:
        warm_up(gr.EASE())
        for n in arguments.sizes:
            row = measure(n)
            append("growth", row)
            print(row, flush=True)
    columns = latest_rows()
    for name, (label, _) in MEASURES.items():
        print(f"{label}: n^{fit_exponent(columns['items'], columns[name]):.2f}")
    if arguments.plot:
        plot()


if __name__ == "__main__":
    main()
