"""What all recipes trained by gradients share. PyTorch is imported only when one of them is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gramian.core.epochs import EpochRecipe
from gramian.core.params import param
from gramian.errors import NotSupported
from gramian.validation import format_install_advice


def learning_rate_param(default: float = 1e-3, tries: tuple[float, ...] = (3e-4, 1e-3, 3e-3)) -> Any:
    return param(default, "initial learning rate of Adam, usually 0.0003 to 0.03", at_least=0, tries=tries)


def halve_after_param() -> Any:
    return param(3, "number of epochs without improvement after which the learning rate is halved, usually 1 to 5", at_least=1)


def device_param() -> Any:
    return param("auto", "where to train: 'auto' takes a GPU if there is one", choices=("auto", "cpu", "cuda"))


class GradientRecipe(EpochRecipe):
    """A recipe that is trained by Adam in PyTorch."""

    batch_size: int
    learning_rate: float
    halve_after: int
    device: str


@contextmanager
def torch_required() -> Iterator[None]:
    """Turn a failed import of PyTorch into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NotSupported("PyTorch, to train by gradients", "no such package", format_install_advice("torch")) from None
