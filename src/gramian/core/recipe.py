"""A recipe is a model's frozen hyperparameters, checked on creation. Fitting it returns a Recommender and changes nothing.

Recipe
├── GramRecipe    the model is a function of the Gram matrix
└── EpochRecipe   the model is trained epoch by epoch (epochs.py)
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gramian.core.estimate import Estimate
from gramian.core.fit_check import require_finite_scorer, warn_if_poor
from gramian.core.gram import Gram, GramPowers
from gramian.core.histories import encode_events
from gramian.core.params import Configurable, params_equal
from gramian.core.recommender import Recommender
from gramian.core.registry import MODELS
from gramian.core.scorer import Scorer
from gramian.data.catalog import Catalog
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.errors import Diverged, Inaccurate, InvalidInput, NotSupported, PrecisionWarning
from gramian.linalg.inverse import column_size, pivot_size
from gramian.linalg.memory import available_bytes, is_memory_backed, require_memory
from gramian.linalg.resumable import free_disk_bytes
from gramian.linalg.symmetric import BLOCK_WIDTH, parse_dtype, stored_size
from gramian.linalg.threads import limit_threads
from gramian.validation import require_instance

S = TypeVar("S")


class RemoteInteractions(ABC):
    """Interactions on a cluster, which know how to fit a recipe there."""

    @abstractmethod
    def fit_recipe(self, recipe: Recipe, dtype: type, scratch: str | Path | None, n_threads: int | None) -> Recommender:
        """Fit a recipe where the interactions are."""


class Counts(Protocol):
    """Interactions or a Gram, by their numbers of users and items."""

    @property
    def n_users(self) -> int: ...

    @property
    def n_items(self) -> int: ...


class Recipe(Configurable, ABC):
    """Base class of all models: frozen parameters, and how to fit them."""

    registry = MODELS
    needs_binary: ClassVar[bool] = False  # whether the mathematics holds for 0/1 interactions only
    needs_features: ClassVar[bool] = False  # whether it learns from features of the items
    takes_dislikes: ClassVar[bool] = False  # whether it has a meaning for interactions below 0
    needs_times: ClassVar[bool] = False  # whether it is a model of sequences
    takes_kinds: ClassVar[bool] = False  # whether it keeps several kinds of events apart

    def fit(
        self,
        events: Interactions | RemoteInteractions,
        *,
        dtype: str | type = "float32",
        scratch: str | Path | None = None,
        n_threads: int | None = None,
    ) -> Recommender:
        """Fit the model on interactions, here or on a cluster (`gr.spark.interactions`).

        Parameters
        ----------
        events
            The interactions.
        dtype
            "float32", or "float64" for twice the memory where a float32 inverse would be inaccurate.
        scratch
            A folder for the matrix (as a memory-mapped file) or for checkpoints. A fit that was killed continues where it
            stopped when it is started again with this folder.
        n_threads
            How many threads to use; all cores if left out.

        Returns
        -------
        Recommender
        """
        parsed_dtype = parse_dtype(dtype)
        if isinstance(events, RemoteInteractions):
            return events.fit_recipe(self, parsed_dtype, scratch, n_threads)
        self.require_signals(require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)"))
        with limit_threads(n_threads), np.errstate(over="ignore", invalid="ignore"):  # `require_finite_scorer` checks
            if scratch is None:
                scorer = retry_in_float64(
                    lambda dtype: require_finite_scorer(self.fit_scorer(events, dtype), self), parsed_dtype
                )
            else:
                scorer = require_finite_scorer(self.fit_scorer_in(Path(scratch), events, parsed_dtype), self)
            histories = encode_events(events, scorer)
            warn_if_poor(scorer, self, histories)
        return Recommender(scorer, self, histories.catalog, histories)

    @abstractmethod
    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        """Fit the scorer in memory. Raises `Inaccurate` where a higher precision may help."""

    def fit_scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        """Fit the scorer with a scratch folder, continuing what an earlier run left there."""
        raise NotSupported("a full-rank autoencoder or a model trained in epochs", type(self).__name__, "Leave scratch out")

    def canonical(self) -> Recipe:
        """Return the simplest recipe that gives the same lists: its scores are the same up to a positive factor."""
        return self

    def canonical_on(self, counts: Counts) -> Recipe:
        """Return the simplest recipe that gives the same lists on data with these numbers of users and items."""
        return self.canonical()

    def require_binary(self, is_binary: bool) -> None:
        """Refuse weighted interactions where the mathematics holds for 0/1 only."""
        if self.needs_binary and not is_binary:
            do = "Read the events with min_value=... instead of value=..., or choose a model that takes weights"
            raise InvalidInput(f"0/1 interactions for {type(self).__name__}", "weights", do)

    def require_features(self, catalog: Catalog) -> Features | None:
        """Return the features of the items; refuse items without features where the model learns from them."""
        if self.needs_features and catalog.features is None:
            do = "Attach them: events.with_features(gr.Features.of(table, tags='genres')), --features on the command line"
            raise InvalidInput(f"features of the items for {type(self).__name__}", "none", do)
        return catalog.features

    def require_signals(self, events: Interactions) -> None:
        """Refuse several kinds of events and dislikes where the model has no use for them."""
        name = type(self).__name__
        if not self.takes_kinds:
            events.require_one_kind(name)
        if not self.takes_dislikes:
            reason = "it is defined for likes alone; EASE, EDLAE, IALS and WRMF take dislikes"
            events.require_no_dislikes(name, reason)
        if self.needs_times and events.times is None:
            raise InvalidInput(f"interactions with times for {name}", "none", 'Read them with time="timestamp"')

    def estimate(self, events: Interactions, *, dtype: str | type = "float32", scratch: str | Path | None = None) -> Estimate:
        """Count the memory and disk space that `fit` with the same arguments would need."""
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        parsed_dtype = parse_dtype(dtype)
        if scratch is None:
            return Estimate(self.fit_bytes(events, parsed_dtype), available_bytes())
        folder = Path(scratch)
        in_memory, on_disk = self.scratch_bytes(events, parsed_dtype)
        if is_memory_backed(folder):
            in_memory += on_disk
        return Estimate(in_memory, available_bytes(), on_disk, free_disk_bytes(folder))

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """Return the peak memory of a fit, beside the interactions."""
        return 8 * events.n_items

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """Return the memory and the disk space of a fit with a scratch folder."""
        raise NotSupported("a full-rank autoencoder or a model trained in epochs", type(self).__name__, "Leave scratch out")


class GramRecipe(Recipe):
    """A recipe whose model is a function of the Gram matrix, plain or normalised."""

    @property
    def gram_powers(self) -> GramPowers:
        """The normalisation of the Gram that it needs: none by default."""
        return GramPowers()

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        """Whether a fit on these interactions computes the Gram matrix; False where products with X suffice."""
        return True

    @abstractmethod
    def solve(self, gram: Gram, overwrite: bool) -> Scorer:
        """Compute the scorer from a Gram of the right kind, in its memory if `overwrite`."""

    def fit_gram(self, gram: Gram, *, overwrite: bool = False) -> Recommender:
        """Fit the model from a Gram matrix. The model knows its items, but no users' histories.

        Parameters
        ----------
        gram
            The Gram matrix, which `gr.Gram.of` or a cluster computed.
        overwrite
            Work in the Gram's own memory instead of a copy. The Gram must not be used afterwards.
        """
        return Recommender(require_finite_scorer(self.solve_gram(gram, overwrite), self), self, gram.catalog)

    def solve_gram(self, gram: Gram, overwrite: bool) -> Scorer:
        """Check that a Gram is of the right kind, and solve."""
        require_instance(gram, Gram, "Make it: gr.Gram.of(events)")
        if gram.powers != self.gram_powers:
            expected = f"a Gram with {self.gram_powers} for {type(self).__name__}"
            raise InvalidInput(expected, str(gram.powers), f"Make it: gr.Gram.of(events, {self.gram_powers})")
        self.require_binary(gram.is_binary)
        self.require_features(gram.catalog)
        if not np.isfinite(gram.matrix.diagonal()).all():  # no entry is larger than the largest on the diagonal
            expected = f"weights whose squares sum up within the range of {gram.matrix.dtype}"
            raise Inaccurate(expected, "larger ones", "Rescale the weights, or use float64")
        return self.solve(gram, overwrite)

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        return self.solve_gram(self.compute_gram(events, dtype), overwrite=True)

    def compute_gram(self, events: Interactions, dtype: type) -> Gram:
        """Compute the Gram after checking that the fit has the memory it needs."""
        self.require_features(events.catalog)
        require_memory(
            self.fit_bytes(events, dtype),
            f"fitting {events.n_items:,} items in {np.dtype(dtype)}",
            "Keep fewer items (events.k_core, --k-core), choose a model that needs no matrix (SparseEDLAE, ChebyCF, LRR), or, "
            "with a full-rank autoencoder, keep the matrix in a file (scratch=folder, --scratch)",
        )
        return Gram.of(events, dtype, **self.gram_powers._asdict())

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n = events.n_items
        by_column = 8 * events.n_interactions  # a second copy of the interactions while the Gram is computed
        numbers = stored_size(n) + column_size(n, BLOCK_WIDTH) + pivot_size(n, BLOCK_WIDTH)
        return numbers * np.dtype(dtype).itemsize + by_column


def equivalent(first: Recipe, second: Recipe, events: Interactions | Gram | None = None) -> bool:
    """Whether two recipes give the same lists: the same scores up to a positive factor.

    Parameters
    ----------
    first, second
        The recipes.
    events
        The interactions, or their Gram matrix, that both are fitted on: a low-rank model of the highest possible rank then
        counts as its full-rank model. If left out, the lists must be the same on any data.
    """
    if not (isinstance(first, Recipe) and isinstance(second, Recipe)):
        raise InvalidInput("two recipes", f"{type(first).__name__} and {type(second).__name__}", "Pass gr.EASE(l2=100), say")
    a, b = (recipe.canonical() if events is None else recipe.canonical_on(events) for recipe in (first, second))
    return type(a) is type(b) and all(params_equal(value, b.params[name]) for name, value in a.params.items())


def retry_in_float64(fit: Callable[[type], S], dtype: type) -> S:
    """Return fit(dtype), or fit(float64) where float32 is not accurate enough."""
    try:
        return fit(dtype)
    except Inaccurate as error:
        if np.dtype(dtype) == np.float64 or isinstance(error, Diverged):
            raise
        problem = str(error)  # the error itself would keep the float32 matrix in memory
    warnings.warn(f"{problem} Fitting again in float64.", PrecisionWarning, stacklevel=3)
    return fit(np.float64)


def require_rank(rank: int, highest: int, counts: Counts) -> None:
    """Refuse a rank that the data cannot have."""
    if rank > highest:
        got = f"rank={rank:,} for {counts.n_users:,} users and {counts.n_items:,} items"
        do = f"Choose rank={highest:,} or less" if highest else "There is nothing to factor"
        raise InvalidInput(f"a rank of at most {highest:,}", got, do)
