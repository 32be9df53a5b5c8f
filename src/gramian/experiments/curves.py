"""Curves: the quality of a recipe by rank, by epoch, or along any other of its parameters, repeated with several seeds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from gramian.core.epochs import EpochRecipe
from gramian.core.recipe import Recipe
from gramian.data.split import Split
from gramian.evaluation.metrics import parse_metrics
from gramian.evaluation.task import RankingTask
from gramian.experiments.experiment import Curve, replace_param
from gramian.experiments.trial import warm_up
from gramian.tuning.rank_path import rank_path

CurvePoint = dict[str, Any]  # at, value, stderr; seconds of an epoch; with several seeds the values and their deviation


def compute_curve(curve: Curve, split: Split, metric: str) -> list[CurvePoint]:
    """Return the points of a curve that is not tuned, on a validation split."""
    recipe = curve.build_recipe()
    if curve.along == "rank" and not curve.values:
        return compute_rank_curve(recipe, curve.ranks, split, metric)
    warm_up(recipe)
    runs = []
    for seed in range(curve.seeds):
        seeded = recipe if curve.seeds == 1 else replace_param(recipe, "seed", seed)
        if curve.along == "epoch":
            runs.append(compute_epoch_curve(seeded, split, metric, curve.patience))
        else:
            points = [compute_point(point, split, metric, curve.patience) for point in curve.points(seeded)]
            runs.append([{"at": value, **point} for value, point in zip(curve.values, points, strict=True)])
    return runs[0] if len(runs) == 1 else average_runs(runs)


def compute_rank_curve(recipe: Recipe, ranks: Sequence[int], split: Split, metric: str) -> list[CurvePoint]:
    """Return the metric at each rank, with its standard error."""
    reports = rank_path(recipe, ranks, split, [metric]).reports
    return [{"at": rank, "value": report[metric], "stderr": report.stderr[metric]} for rank, report in reports.items()]


def compute_epoch_curve(recipe: Recipe, split: Split, metric: str, patience: int | None = None) -> list[CurvePoint]:
    """Return the metric after each epoch, with its standard error and the seconds of training so far, without evaluation.

    Training stops early after `patience` epochs without improvement.
    """
    assert isinstance(recipe, EpochRecipe)
    parsed, points, seconds = parse_metrics([metric]), [], 0.0
    task = RankingTask.of(split.held_out, split.train.catalog)
    started = time.perf_counter()
    for epoch in recipe.epochs(split.train):
        seconds += time.perf_counter() - started
        report = task.report(task.rank(epoch.model, parsed[0].k), parsed)
        point = {"at": epoch.number, "seconds": round(seconds, 3), "value": report[metric], "stderr": report.stderr[metric]}
        points.append(point)
        best = max(points, key=lambda point: point["value"])
        if patience is not None and epoch.number - best["at"] >= patience:
            break
        started = time.perf_counter()
    return points


def compute_point(recipe: Recipe, split: Split, metric: str, patience: int | None) -> CurvePoint:
    """Return the metric of a recipe: at its best epoch if it may stop early, and otherwise of its fit."""
    if patience is not None and isinstance(recipe, EpochRecipe):
        best = max(compute_epoch_curve(recipe, split, metric, patience), key=lambda point: point["value"])
        return {"value": best["value"], "stderr": best["stderr"], "epoch": best["at"]}
    parsed, task = parse_metrics([metric]), RankingTask.of(split.held_out, split.train.catalog)
    report = task.report(task.rank(recipe.fit(split.train), parsed[0].k), parsed)
    return {"value": report[metric], "stderr": report.stderr[metric]}


def average_runs(runs: Sequence[list[CurvePoint]]) -> list[CurvePoint]:
    """Return the mean of several runs at each point that all have, with the standard deviation and error over the runs."""
    averaged = []
    for points in zip(*runs, strict=False):  # runs that stopped early are shorter
        values = [float(point["value"]) for point in points]
        deviation = float(np.std(values, ddof=1))
        point = {"at": points[0]["at"], "value": float(np.mean(values)), "stderr": deviation / sqrt(len(values))}
        if "seconds" in points[0]:
            point["seconds"] = round(float(np.mean([run["seconds"] for run in points])), 3)
        averaged.append(point | {"deviation": deviation, "values": values})
    return averaged
