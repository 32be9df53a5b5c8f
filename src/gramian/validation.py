"""Checks of plain arguments that many public functions share, and what to do about a package that is missing."""

from __future__ import annotations

import shlex
import shutil
import sys
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gramian.errors import InvalidInput

T = TypeVar("T")


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that a float can hold; booleans are not numbers."""
    try:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def require_whole_number(name: str, value: Any, minimum: int = 1, example: int | None = None) -> int:
    """Return a whole number of at least `minimum`, or raise `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidInput(
            f"{name} of at least {minimum}", repr(value), f"Pass {name}={minimum if example is None else example}"
        )
    return int(value)


def require_instance(value: Any, expected: type[T], do: str) -> T:
    """Return a value of the given type, or raise `InvalidInput` that says how to make one."""
    if not isinstance(value, expected):
        raise InvalidInput(f"{'an' if expected.__name__[0] in 'AEIOU' else 'a'} {expected.__name__}", type(value).__name__, do)
    return value


def format_install_advice(extra: str) -> str:
    """Return the command that installs the packages of an extra, such as "torch", into this environment.

    It works from any folder and with any index: gramian is installed already, so pip fetches only the packages of the extra.
    """
    path = shutil.which("python")
    is_this_python = path is not None and Path(path).parent == Path(sys.executable).parent
    python = "python" if is_this_python else shlex.quote(sys.executable)
    return f"Run `{python} -m pip install 'gramian[{extra}]'`"
