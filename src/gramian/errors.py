"""One error family. Every message says what was expected, what came, and what to do.

GramianError
├── InvalidInput      (ValueError)         an argument or a table is not what it should be
├── UnknownId         (LookupError)        an id that the model or the data set does not hold
├── NotSupported      (TypeError)          this model cannot do that, by its mathematics
├── MissingFile       (FileNotFoundError)  a path or data set that is not there
├── DamagedFile       (ValueError)         a saved folder that is truncated, edited or foreign
├── NotEnoughMemory   (MemoryError)        refused before allocating
└── Inaccurate        (ArithmeticError)    a solve that failed its own accuracy check

PrecisionWarning      (UserWarning)        a fit was repeated in float64
StartingOver          (UserWarning)        a scratch folder could not be resumed
UsersElsewhere        (UserWarning)        a model whose users stayed on the cluster
"""


class GramianError(Exception):
    """The base of all errors the library raises on purpose."""

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(expected, got, do)
        self.message = f"expected {expected}; got {got}. {do}."

    def __str__(self) -> str:
        return self.message


class InvalidInput(GramianError, ValueError):
    pass


class UnknownId(GramianError, LookupError):
    pass


class NotSupported(GramianError, TypeError):
    pass


class MissingFile(GramianError, FileNotFoundError):
    pass


class DamagedFile(GramianError, ValueError):
    pass


class NotEnoughMemory(GramianError, MemoryError):
    pass


class Inaccurate(GramianError, ArithmeticError):
    pass


class PrecisionWarning(UserWarning):
    pass


class StartingOver(UserWarning):
    pass


class UsersElsewhere(UserWarning):
    pass
