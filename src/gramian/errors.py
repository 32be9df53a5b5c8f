"""All errors and warnings of the library. Every error says what was expected, what it got, and what to do.

Messages name an argument as in a call, `name=value`, so that the command line can show its own flag in that place: write
"Pass k=10", not "Pass 10 as k". What a user passed belongs into `got` alone, which is never translated.

GramianError
├── InvalidInput      (ValueError)         an invalid argument or table
├── UnknownId         (LookupError)        an id that the model or data set does not have
├── LeakedEvaluation  (ValueError)         a model that was fitted on the targets it is evaluated on
├── NotRegistered     (LookupError)        a model, scorer, loss or metric that is not registered
├── NotSupported      (TypeError)          something this model cannot do
├── MissingFile       (FileNotFoundError)  a path or data set that does not exist
├── DamagedFile       (ValueError)         a saved folder that is truncated, edited or of another program
├── NotEnoughMemory   (MemoryError)        refused before allocating
└── Inaccurate        (ArithmeticError)    a solve that failed its accuracy check
    └── Diverged                           a training whose objective grew instead of falling

PrecisionWarning      (UserWarning)        a fit was repeated in float64
RefitWarning          (UserWarning)        an update changed so much that the model was fitted again
PoorFitWarning        (UserWarning)        a fitted model ranks its own training data worse than Popularity does
RestartWarning        (UserWarning)        a scratch folder could not be resumed
NoHistoriesWarning    (UserWarning)        a model fitted on a cluster does not hold its users' histories
TunedOnTestWarning    (UserWarning)        parameters are chosen on the test users of a split
SearchEdgeWarning     (UserWarning)        the best value of a parameter is at an end of what was tried
HeavyTailWarning      (UserWarning)        a few large weights outweigh all other interactions
"""


class GramianError(Exception):
    """Base class of all errors the library raises on purpose.

    Parameters
    ----------
    expected, got, do
        Fragments of the message "expected ...; got .... Do.". They are kept as attributes.
    """

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(expected, got, do)
        self.expected, self.got, self.do = expected, got, do

    def __str__(self) -> str:
        return f"expected {self.expected}; got {self.got}. {self.do}."


class InvalidInput(GramianError, ValueError):
    """An argument or a table is invalid."""


class UnknownId(GramianError, LookupError):
    """An id is unknown to the model or data set."""


class LeakedEvaluation(GramianError, ValueError):
    """The model was fitted on targets of the split, so its metrics would be too high."""


class NotRegistered(GramianError, LookupError):
    """A name refers to a model, scorer, loss or metric that is not registered."""


class NotSupported(GramianError, TypeError):
    """The model cannot do what was asked."""


class MissingFile(GramianError, FileNotFoundError):
    """A path or data set does not exist."""


class DamagedFile(GramianError, ValueError):
    """A saved folder is truncated, edited or of another program."""


class NotEnoughMemory(GramianError, MemoryError):
    """The memory would not suffice; nothing was allocated."""


class Inaccurate(GramianError, ArithmeticError):
    """A solve failed its accuracy check."""


class Diverged(Inaccurate):
    """The objective of a training grew instead of falling. More precision would not help; other parameters may."""


class PrecisionWarning(UserWarning):
    """A fit was repeated in float64."""


class RefitWarning(UserWarning):
    """An update changed so much that the model was fitted again, which was cheaper or more accurate."""


class PoorFitWarning(UserWarning):
    """A fitted model ranks its own training data worse than Popularity does."""


class RestartWarning(UserWarning):
    """A scratch folder could not be resumed, so the fit starts again."""


class NoHistoriesWarning(UserWarning):
    """A model fitted on a cluster does not hold its users' histories."""


class TunedOnTestWarning(UserWarning):
    """Parameters are chosen on the test users of a split, so that its test metrics would be too high."""


class SearchEdgeWarning(UserWarning):
    """The best value of a parameter is at an end of what was tried."""


class HeavyTailWarning(UserWarning):
    """A few large weights outweigh all other interactions."""
