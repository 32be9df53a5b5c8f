"""What all recipes trained by gradients share. PyTorch is imported only when one of them is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gramian.core.epochs import EpochRecipe
from gramian.core.params import Configurable, configurable, param
from gramian.errors import NotSupported
from gramian.validation import format_install_advice


def learning_rate_param(default: float = 1e-3, tries: tuple[float, ...] = (3e-4, 1e-3, 3e-3)) -> Any:
    return param(default, "initial learning rate of Adam, usually 0.0003 to 0.03", at_least=0, tries=tries)


def halve_after_param() -> Any:
    return param(3, "number of epochs without improvement after which the learning rate is halved, usually 1 to 5", at_least=1)


def device_param() -> Any:
    return param("auto", "where to train: 'auto' takes a GPU if there is one", choices=("auto", "cpu", "cuda"))


@configurable
class Training(Configurable):
    """How vectors start, what is done to a step, and what happens at a plateau, which `halve_after` defines.

    `Training(initial_sd=1e-4, max_norm=10, plateau_factor=0.1, reload_best=True)` with weight_decay=1e-8 is the training of
    SimpleX (Mao et al. 2021).
    """

    initial_sd: float | None = param(
        None, "standard deviation of the initial vectors, usually 0.0001 to 0.1; None: 0.1/√rank", like=0.1, at_least=1e-12
    )
    dropout: float = param(
        0.0, "fraction of the entries of a batch's vectors that a step replaces by 0, usually 0 to 0.3", at_least=0, below=1
    )
    max_norm: float | None = param(
        None,
        "largest norm of a step's gradient, to which longer ones are shortened, usually 1 to 10",
        like=10.0,
        at_least=1e-12,
    )
    max_length: float | None = param(
        None, "longest vector, to which a step shortens longer ones; 1 for SML and CML as printed", like=1.0, at_least=1e-6
    )
    plateau_factor: float = param(
        0.5, "what the learning rate is multiplied by at a plateau, usually 0.1 to 0.5", at_least=0.01, at_most=1
    )
    reload_best: bool = param(False, "whether a plateau also restores the vectors of the best epoch")


class GradientRecipe(EpochRecipe):
    """A recipe that is trained by Adam in PyTorch."""

    training: Training = Training()  # of recipes that do not declare it

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
