"""Retraining: refit the recipe of a model on newer events, and replace the model only if the new one is no worse.

The gate holds out the newest events that the old model has not seen. A candidate is fitted on what came before them, and both
rank the same users' items. Where the events have no times, half of the new pairs are held out at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramian.core.recommender import Recommender
from gramian.data.interactions import Interactions
from gramian.data.split import HeldOutUsers
from gramian.data.summary import format_count
from gramian.errors import Inaccurate, InvalidInput
from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.evaluation.evaluate import evaluate
from gramian.evaluation.metrics import MetricLike, parse_metric
from gramian.evaluation.report import Comparison, Report
from gramian.io.journal import provenance
from gramian.linalg.hashing import hash_pairs
from gramian.linalg.threads import limit_threads
from gramian.validation import require_instance

MAX_TEST_SHARE, MAX_NEW_SHARE = 0.1, 0.5  # of all events, and of the events that the old model has not seen
MIN_GATE_USERS = 30  # test users below whom a paired t-test says too little
MIN_KNOWN_SHARE = 0.5  # of the old model's events; if the new events have fewer, the reason says so


@dataclass(frozen=True, eq=False, repr=False)
class Retraining:
    """The result of `gr.retrain`.

    Parameters
    ----------
    model
        The model to use from now on: the new one, fitted on all events, or the old one.
    is_replaced
        Whether it is the new one.
    reason
        Why, in a sentence.
    comparison
        The new model minus the old one on the newest events, with the p-value of a paired t-test; None if there was no test.
    """

    model: Recommender
    is_replaced: bool
    reason: str
    comparison: Comparison | None = None

    def __repr__(self) -> str:
        return f"Retraining({'replaced' if self.is_replaced else 'kept'}: {self.reason})"

    def to_json(self) -> dict[str, Any]:
        """Return the decision and its figures for JSON."""
        return {
            "recipe": self.model.recipe.to_json(),
            "is_replaced": self.is_replaced,
            "reason": self.reason,
            "comparison": None if self.comparison is None else vars(self.comparison),
        }


def retrain(
    old: Recommender, events: Interactions, *, metric: MetricLike = "ndcg@20", seed: int = 0, n_threads: int | None = None
) -> Retraining:
    """Refit the recipe of a model on newer events, and compare both on the newest of them.

    Parameters
    ----------
    old
        The model in use, with its users' histories.
    events
        All events up to now: those that the old model was fitted on may be among them.
    metric
        The metric of the comparison.
    seed
        Seed of the random choice of test events where there are no times.
    n_threads
        How many threads to use; all cores if left out.

    Returns
    -------
    Retraining
        With the new model unless it is significantly worse than the old one (one-sided paired t-test, p < 0.05), or there are
        fewer than 30 users to test on.
    """
    require_instance(old, Recommender, "Load it: gr.load(path)")
    require_instance(events, Interactions, "Read them: gr.read(path)")
    if old.histories is None:
        raise InvalidInput(
            "a model with its users' histories", "one fitted from a Gram or on a cluster", "Fit it on one machine"
        )
    parsed = parse_metric(metric)
    is_new = ~find_known(events, old.histories)
    if not is_new.any():
        return Retraining(old, False, "the model has seen all of these events")
    train, held_out = hold_out_newest(events, is_new, seed)
    if held_out is None or held_out.target.n_users < MIN_GATE_USERS:
        n_users = 0 if held_out is None else held_out.target.n_users
        reason = (
            f"only {format_count(n_users, 'user')} with both older events and new ones, too few to compare models "
            f"(at least {MIN_GATE_USERS}){describe_missing(events, is_new, old.histories)}"
        )
        return Retraining(old, False, reason)
    with limit_threads(n_threads):
        try:
            candidate = old.recipe.fit(train)
        except (InvalidInput, Inaccurate) as error:
            missing = describe_missing(events, is_new, old.histories)
            return Retraining(old, False, f"{old.recipe} cannot be fitted on these events{missing}: {error}".rstrip("."))
        new_report, old_report = (evaluate(model, held_out, [parsed]) for model in (candidate, old))
        comparison = new_report.compare(old_report, str(parsed))
        is_worse = comparison.difference < 0 and comparison.p_value / 2 < SIGNIFICANCE
        reason = describe_gate(comparison, new_report, old_report, is_worse)
        reason += describe_missing(events, is_new, old.histories)
        if is_worse:
            return Retraining(old, False, reason, comparison)
        model = old.recipe.fit(events)
    model.card = build_retrained_card(old, events, reason, comparison)
    return Retraining(model, True, reason, comparison)


def describe_gate(comparison: Comparison, new: Report, old: Report, is_worse: bool) -> str:
    """Return the decision in a sentence."""
    name = comparison.metric
    figures = f"{name} {new[name]:.4f} against {old[name]:.4f} on the newest events of {len(new.users):,} users"
    p_value = f"p = {comparison.p_value:.2g}"
    if is_worse:
        return f"the new model is significantly worse: {figures} ({p_value})"
    better = "better" if comparison.difference > 0 and comparison.p_value < SIGNIFICANCE else "no worse"
    return f"the new model is {better}: {figures} ({p_value})"


def describe_missing(events: Interactions, is_new: np.ndarray, histories: Interactions) -> str:
    """Return a remark if the events lack most of those that the old model was fitted on, as a file of new ones alone does."""
    share = (events.n_interactions - int(is_new.sum())) / max(histories.n_interactions, 1)
    return "" if share >= MIN_KNOWN_SHARE else f"; the events have only {share:.0%} of those that the old model was fitted on"


def find_known(events: Interactions, histories: Interactions) -> np.ndarray:
    """Return for each entry of the events whether the histories have it."""
    known = histories.reindex(events.users, events.items).matrix
    n_items = events.n_items
    keys = events.rows.astype(np.int64) * n_items + events.matrix.indices
    known_keys = np.repeat(np.arange(events.n_users, dtype=np.int64), np.diff(known.indptr)) * n_items + known.indices
    return np.isin(keys, known_keys)


def hold_out_newest(events: Interactions, is_new: np.ndarray, seed: int) -> tuple[Interactions, HeldOutUsers | None]:
    """Return the events to fit a candidate on, and the users to test with the newest of the new events as targets."""
    n_targets = max(1, int(min(MAX_TEST_SHARE * events.n_interactions, MAX_NEW_SHARE * is_new.sum())))
    if events.times is not None:
        cutoff = np.sort(events.times[is_new])[-n_targets]
        is_held_out = events.times >= cutoff
        if is_held_out.sum() > 2 * n_targets and (events.times > cutoff).any():  # many events at one time, such as a day
            is_held_out = events.times > cutoff
    else:
        entries = np.flatnonzero(is_new)
        is_held_out = np.zeros(events.n_interactions, np.bool_)
        is_held_out[entries[np.argsort(hash_pairs(seed, entries, 0))[:n_targets]]] = True
    train, target = events.keep(~is_held_out), events.keep(is_held_out & is_new)
    rows = np.flatnonzero((np.diff(train.matrix.indptr) > 0) & (np.diff(target.matrix.indptr) > 0))
    if len(rows) == 0:
        return train, None
    fingerprint = f"newest {n_targets} of {events.fingerprint}"
    return train, HeldOutUsers(train.take(rows), target.take(rows), train.n_users, fingerprint)


def build_retrained_card(old: Recommender, events: Interactions, reason: str, comparison: Comparison) -> dict[str, Any]:
    """Return the model card of a retrained model: that of the old one, with the new data and the outcome of the gate."""
    card = dict(old.card or {"model": str(old.recipe), "recipe": old.recipe.to_json()})
    card["data"] = {
        "fingerprint": events.fingerprint,
        "users": events.n_users,
        "items": events.n_items,
        "interactions": events.n_interactions,
    }
    card["retrained"] = {"reason": reason, **vars(comparison)}
    return card | provenance()
