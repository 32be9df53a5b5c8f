"""A recipe is frozen hyperparameters, checked on creation. Fitting it gives a Recommender and changes nothing.

A hyperparameter may have hyperparameters of its own, as a solver has its steps: it is a `Part`, and so is a recipe.
"""

from __future__ import annotations

import ast
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf, isclose
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import get_num_threads

from gramian.data.interactions import Interactions
from gramian.data.tables import is_number
from gramian.errors import Inaccurate, InvalidInput, NotSupported, PrecisionWarning
from gramian.linalg.gram import Gram
from gramian.linalg.inverse import column_size, pivot_size
from gramian.linalg.memory import available, held_in_memory, readable, require
from gramian.linalg.scratch import free_for
from gramian.linalg.speed import gram_rate, inverse_rate, products
from gramian.linalg.symmetric import WIDTH, checked_dtype, size
from gramian.linalg.threads import threads
from gramian.progress import duration
from gramian.recommender import Recommender, Scorer

S = TypeVar("S", bound=Scorer)


def setting(
    default: Any,
    about: str,
    *,
    at_least: float = -inf,
    below: float = inf,
    choices: tuple[Any, ...] = (),
    per_factor: bool = False,
    tries: tuple[Any, ...] = (),
    free: bool = False,
    like: Any = None,
) -> Any:
    """A hyperparameter, said once, for all who need it: constructor, checks, command line and search.

    It is of its default's type: a number, a whole number, True or False, one of `choices`, or a part of one of the kinds in
    `choices`; with `per_factor`, one number or one for each factor. Where the default is None, it may be that, or of the type
    of `like`. A search tries `tries`. Recipes that differ in a `free` setting only are fitted together at the cost of one.
    """
    about_it = {"about": about, "at_least": at_least, "below": below, "choices": choices, "per_factor": per_factor}
    kind = default if like is None else like
    return field(default=default, metadata=about_it | {"tries": tries or (default,), "free": free, "like": kind})


def checked(value: Any, default: Any, limits: Mapping[str, Any]) -> Any:
    """A setting's value in its own type, or None where it is none."""
    if isinstance(default, bool):
        return value if isinstance(value, bool) else None
    if isinstance(default, str):
        return value if value in limits["choices"] else None
    if isinstance(default, Part):
        return part_of(value, limits["choices"])
    if limits["per_factor"] and isinstance(value, list | tuple | np.ndarray):
        parts = tuple(checked(part, default, {**limits, "per_factor": False}) for part in value)
        return parts if parts and None not in parts else None
    if not (is_number(value) and limits["at_least"] <= value < limits["below"]):
        return None
    if isinstance(default, int):
        return int(value) if value == int(value) else None
    return float(value)


def wanted(default: Any, limits: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    if isinstance(default, bool):
        return "True or False"
    if isinstance(default, str):
        return " or ".join(map(repr, limits["choices"]))
    if isinstance(default, Part):
        return " or ".join(str(kind()) for kind in limits["choices"])
    kind = "a whole number" if isinstance(default, int) else "a number"
    high = f" and below {limits['below']:g}" if limits["below"] < inf else ""
    many = ", or a list of one for each factor" if limits["per_factor"] else ""
    return f"{kind} of at least {limits['at_least']:g}{high}{many}"


def short(value: Any) -> str:
    """A setting's value, as in messages and tables."""
    if isinstance(value, tuple):
        return f"({', '.join(map(short, value))})"
    return format(value, "g") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Part:
    """Named settings, checked on creation."""

    def __post_init__(self) -> None:
        for f in fields(self):
            given = getattr(self, f.name)
            if given is None and f.default is None:
                continue
            value = checked(given, f.metadata["like"], f.metadata)
            if value is None:
                what = wanted(f.metadata["like"], f.metadata) + (", or None" if f.default is None else "")
                got = repr(given)
                raise InvalidInput(f"{f.name} of {type(self).__name__} to be {what}", got, f"The default is {f.default}")
            object.__setattr__(self, f.name, value)

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def settings(self) -> str:
        """The settings in short, as in 'dropout=0.3, l2=200', without switches and parts that are as usual."""
        usual = (f for f in fields(self) if isinstance(f.default, bool | Part | None) and getattr(self, f.name) == f.default)
        quiet = {f.name for f in usual}
        return ", ".join(f"{name}={short(value)}" for name, value in self.chosen.items() if name not in quiet)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.settings})"

    def to_json(self) -> dict[str, Any]:
        settings = {name: v.to_json() if isinstance(v, Part) else v for name, v in self.chosen.items()}
        return {"name": type(self).__name__, "settings": settings}


def part_of(value: Any, kinds: tuple[type[Part], ...]) -> Part | None:
    """A part, which may be given by its JSON, or in words as it is printed; None where it is none of these kinds."""
    if isinstance(value, kinds):
        return value
    if isinstance(value, str):
        try:
            value = in_words(ast.parse(value.strip()[:1000], mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    if isinstance(value, str):  # a name alone
        value = {"name": value}
    named = {kind.__name__.lower(): kind for kind in kinds}
    if not (isinstance(value, Mapping) and str(value.get("name")).lower() in named):
        return None
    kind, settings = named[str(value["name"]).lower()], value.get("settings", {})
    known = isinstance(settings, Mapping) and set(settings) <= {f.name for f in fields(kind)}
    return kind(**settings) if known else None


def in_words(node: ast.expr) -> Any:
    """'CCL(margin=0.9, debiased=Debias(positives=10))' as JSON: names and numbers only, and nothing is called."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return {"name": node.func.id, "settings": {str(word.arg): in_words(word.value) for word in node.keywords}}
    return ast.literal_eval(node)


@dataclass(frozen=True)
class Estimate:
    """What a fit will take, and what there is."""

    seconds: float
    peak_bytes: int  # of memory, beside the interactions
    free_bytes: int
    disk_bytes: int = 0  # of the scratch folder
    free_disk_bytes: int = 0

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.free_bytes and self.disk_bytes <= self.free_disk_bytes

    def __str__(self) -> str:
        parts = [f"{readable(self.peak_bytes)} of {readable(self.free_bytes)} free memory"]
        if self.disk_bytes:
            parts.append(f"{readable(self.disk_bytes)} of {readable(self.free_disk_bytes)} free on the disk")
        return f"about {duration(self.seconds)}, {', '.join(parts)}: it {'fits' if self.fits else 'does not fit'}"


class Elsewhere(ABC):
    """Interactions that are not on this machine, and know how a recipe is fitted where they are."""

    @abstractmethod
    def fitted(self, recipe: Recipe, dtype: type, scratch: str | Path | None, n_threads: int | None) -> Recommender: ...


@dataclass(frozen=True)
class Recipe(Part, ABC):
    """The base of all models."""

    def fit(
        self,
        events: Interactions | Elsewhere,
        *,
        dtype: str | type = "float32",
        scratch: str | Path | None = None,
        n_threads: int | None = None,
    ) -> Recommender:
        """Fit on interactions, here or on a cluster (`gr.spark.interactions`).

        `dtype="float64"` doubles the memory for models whose float32 inverse would be poor. With a `scratch` folder the
        matrix lives in a memory-mapped file there, or the last epochs do, and the same fit, killed and started again, goes on
        where it was.
        """
        kind = checked_dtype(dtype)
        if isinstance(events, Elsewhere):
            return events.fitted(self, kind, scratch, n_threads)
        require_interactions(events)
        with threads(n_threads):
            scorer = self.scorer(events, kind) if scratch is None else self.scorer_in(Path(scratch), events, kind)
        return Recommender(scorer, self, events)

    @abstractmethod
    def scorer(self, events: Interactions, dtype: type) -> Scorer:
        """The fitted arrays."""

    def scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        """The fitted arrays, made in a scratch folder."""
        raise NotSupported("a model of one matrix or of epochs, with scratch", type(self).__name__, "Leave scratch out")

    def updated(self, scorer: Any, after: Interactions, change: Interactions, sign: int) -> Scorer:
        """The fitted arrays for `after`: what the scorer was fitted on, with these users more (sign 1) or less (sign −1)."""
        raise NotSupported("a closed-form item-item model", type(self).__name__, "Fit it again")

    def canonical(self) -> Recipe:
        """The simplest recipe that gives the same lists: scores are the same up to a positive factor."""
        return self

    def estimate(
        self,
        events: Interactions,
        *,
        dtype: str | type = "float32",
        scratch: str | Path | None = None,
        n_threads: int | None = None,
    ) -> Estimate:
        """What `fit` would take, by the number of items and the speed this machine is measured to have."""
        require_interactions(events)
        kind = checked_dtype(dtype)
        with threads(n_threads):
            seconds, free = self.fit_seconds(events, kind), available()
        if scratch is None:
            return Estimate(seconds, self.fit_bytes(events, kind), free)
        folder = Path(scratch)
        in_memory, on_disk = self.scratch_bytes(events, kind)
        if held_in_memory(folder):
            in_memory += on_disk
        return Estimate(seconds, in_memory, free, on_disk, free_for(folder))

    def fit_seconds(self, events: Interactions, dtype: type) -> float:
        return 0.0

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The peak memory of a fit, beside the interactions."""
        return 8 * events.n_items

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """The same with a scratch folder: in memory, and on the disk."""
        raise NotSupported("a model of one matrix or of epochs, with scratch", type(self).__name__, "Leave scratch out")


class OfGram(Recipe):
    """A recipe whose model is a function of the Gram matrix."""

    needs_binary = False  # whether the mathematics holds for 0/1 interactions only
    normalised = False  # whether it is the row-normalised Gram

    def fit_gram(self, gram: Gram, *, overwrite: bool = False) -> Scorer:
        """Fit from a Gram matrix, leaving it as it is, or working in its memory with `overwrite=True`."""
        if not isinstance(gram, Gram):
            raise InvalidInput("a Gram", type(gram).__name__, "Make it: gr.Gram.of(events)")
        if gram.is_normalised != self.normalised:
            kinds = ("the plain Gram", "the row-normalised Gram")
            wanted, got = kinds[self.normalised], kinds[gram.is_normalised]
            do = f"Make it: gr.Gram.of(events, normalised={self.normalised})"
            raise InvalidInput(f"{wanted} for {type(self).__name__}", got, do)
        self.require_binary(gram.is_binary)
        return self.from_gram(gram, overwrite)

    @abstractmethod
    def from_gram(self, gram: Gram, overwrite: bool) -> Any:
        """The fitted arrays, from a Gram of the right kind."""

    def require_binary(self, is_binary: bool) -> None:
        if self.needs_binary and not is_binary:
            name = type(self).__name__
            raise InvalidInput(
                f"0/1 interactions for {name}", "weights", "Read the events with min_value=... instead of value=..."
            )


class ClosedForm(OfGram):
    """One that needs the Gram matrix as a whole."""

    def scorer(self, events: Interactions, dtype: type) -> Any:
        return precise(lambda dtype: self.fit_gram(self.gram(events, dtype), overwrite=True), dtype)

    def gram(self, events: Interactions, dtype: type) -> Gram:
        """The Gram, once it is clear that the fit has the memory it needs."""
        require(
            self.fit_bytes(events, dtype),
            f"fitting {events.n_items:,} items in {np.dtype(dtype)}",
            "Keep fewer items (events.k_core, --k-core), choose a model that needs no matrix (RegularizedPCA, LRR), or, with a "
            "full-rank autoencoder, keep the matrix in a file (scratch=folder, --scratch)",
        )
        return Gram.of(events, dtype)

    def fit_seconds(self, events: Interactions, dtype: type) -> float:
        n_threads = get_num_threads()
        inverse = events.n_items**3 / inverse_rate(np.dtype(dtype), n_threads)
        return inverse + products(events) / gram_rate(n_threads)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n = events.n_items
        by_column = 8 * events.n_interactions  # the interactions once more, while the Gram is made
        return (size(n) + column_size(n, WIDTH) + pivot_size(n, WIDTH)) * np.dtype(dtype).itemsize + by_column


def equivalent(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes give the same lists on any data: the same model, up to a factor of all scores."""
    if not (isinstance(one, Recipe) and isinstance(other, Recipe)):
        raise InvalidInput("two recipes", f"{type(one).__name__} and {type(other).__name__}", "Pass gr.EASE(l2=100), say")
    a, b = one.canonical(), other.canonical()
    return type(a) is type(b) and all(same(x, b.chosen[name]) for name, x in a.chosen.items())


def same(x: Any, y: Any) -> bool:
    return isclose(x, y, rel_tol=1e-12) if isinstance(x, float) and isinstance(y, float) else bool(x == y)


def precise(fit: Callable[[type], S], dtype: type) -> S:
    """What fit(dtype) gives; where float32 is not enough, what float64 gives."""
    try:
        return fit(dtype)
    except Inaccurate as error:
        if np.dtype(dtype) == np.float64:
            raise
        problem = str(error)  # the error itself holds on to the float32 matrix
    warnings.warn(f"{problem} Fitting again in float64.", PrecisionWarning, stacklevel=4)
    return fit(np.float64)


def require_interactions(events: Interactions) -> None:
    if not isinstance(events, Interactions):
        raise InvalidInput("Interactions", type(events).__name__, "Wrap it: gr.Interactions.of(...)")
