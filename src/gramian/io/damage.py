"""Report invalid content of a saved folder as `DamagedFile`, whatever error it caused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gramian.errors import DamagedFile, NotEnoughMemory, NotRegistered
from gramian.linalg.finite import find_non_finite

CONTENT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
MAX_REASON = 300  # characters of a message that quotes the content of a file


@contextmanager
def report_damage(path: str | Path) -> Iterator[None]:
    """Turn any error from a folder's content into `DamagedFile`: a valid checksum does not make the content valid."""
    try:
        yield
    except (DamagedFile, NotRegistered, NotEnoughMemory):
        raise
    except CONTENT_ERRORS as error:
        reason = f"{type(error).__name__} in its content: {error}"[:MAX_REASON]
        raise DamagedFile(f"a valid saved folder at {path}", reason, "Save it again with this version of gramian") from None


def require_content(condition: bool, expected: str) -> None:
    """Raise `DamagedFile` unless the content of a folder is as expected."""
    if not condition:
        raise DamagedFile(expected, "something else", "Save it again")


def require_finite(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise `DamagedFile` if a floating-point array has a NaN or an infinite element."""
    name = find_non_finite(arrays)
    require_content(name is None, f"finite numbers in {name}")
