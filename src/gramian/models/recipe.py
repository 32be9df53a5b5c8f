"""A recipe is frozen hyperparameters, checked on creation. Fitting it gives a Recommender and changes nothing."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from math import inf
from typing import Any

import numpy as np

from gramian.data.interactions import Interactions
from gramian.data.tables import is_number
from gramian.errors import Inaccurate, InvalidInput, PrecisionWarning
from gramian.linalg.gram import Gram
from gramian.linalg.inverse import workspace
from gramian.linalg.memory import require
from gramian.linalg.symmetric import WIDTH, checked_dtype, size
from gramian.recommender import Recommender, Scorer


def setting(default: Any, about: str, *, at_least: float = -inf, below: float = inf) -> Any:
    """A hyperparameter: default, meaning and range, said once; constructor, checks and command line all read it here."""
    return field(default=default, metadata={"about": about, "at_least": at_least, "below": below})


@dataclass(frozen=True)
class Recipe(ABC):
    """The base of all models."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value, low, high = getattr(self, f.name), f.metadata["at_least"], f.metadata["below"]
            if isinstance(f.default, bool):
                fine, wanted = isinstance(value, bool), "True or False"
            else:
                fine = is_number(value) and low <= value < high
                wanted = f"a number of at least {low:g}" + (f" and below {high:g}" if high < inf else "")
            if not fine:
                name = type(self).__name__
                raise InvalidInput(f"{f.name} of {name} to be {wanted}", repr(value), f"The default is {f.default}")
            object.__setattr__(self, f.name, bool(value) if isinstance(f.default, bool) else float(value))

    @property
    def settings(self) -> str:
        """The settings in short, as in 'dropout=0.3, l2=200'."""
        values = {name: value for name, value in asdict(self).items() if value is not False}
        return ", ".join(f"{name}={value if value is True else format(value, 'g')}" for name, value in values.items())

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.settings})"

    def to_json(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "settings": asdict(self)}

    def fit(self, events: Interactions, *, dtype: str | type = "float32") -> Recommender:
        """Fit on interactions. `dtype="float64"` doubles the memory for models whose float32 inverse would be poor."""
        if not isinstance(events, Interactions):
            raise InvalidInput("Interactions", type(events).__name__, "Wrap it: gr.Interactions.of(...)")
        return Recommender(self.scorer(events, checked_dtype(dtype)), self, events)

    @abstractmethod
    def scorer(self, events: Interactions, dtype: str | type) -> Scorer:
        """The fitted arrays."""


class ClosedForm(Recipe):
    """A recipe that needs only the Gram matrix."""

    needs_binary = False  # whether the mathematics holds for 0/1 interactions only

    @abstractmethod
    def fit_gram(self, gram: Gram, *, overwrite: bool = False) -> Scorer:
        """Fit from a Gram matrix, leaving it as it is, or working in its memory with `overwrite=True`."""

    def scorer(self, events: Interactions, dtype: str | type) -> Scorer:
        require(
            fit_bytes(events.n_items, dtype) + 8 * events.n_interactions,  # and the interactions by column
            f"fitting {events.n_items:,} items in {np.dtype(dtype)}",
            "Keep fewer items (events.k_core) or use a machine with more memory",
        )
        try:
            return self.fit_gram(Gram.of(events, dtype), overwrite=True)
        except Inaccurate as error:
            if np.dtype(dtype) == np.float64:
                raise
            problem = str(error)  # the error itself holds on to the float32 matrix
        warnings.warn(f"{problem} Fitting again in float64.", PrecisionWarning, stacklevel=3)
        return self.scorer(events, "float64")

    def check(self, gram: Gram) -> None:
        if self.needs_binary and not gram.is_binary:
            name = type(self).__name__
            raise InvalidInput(
                f"0/1 interactions for {name}", "weights", "Read the events with min_value=... instead of value=..."
            )


def fit_bytes(n_items: int, dtype: str | type = "float32") -> int:
    """The peak memory of a closed-form fit over that of the interactions."""
    return (size(n_items) + workspace(n_items, WIDTH)) * np.dtype(dtype).itemsize
