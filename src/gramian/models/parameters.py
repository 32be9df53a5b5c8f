"""Parameters that several models share, declared once."""

from __future__ import annotations

from typing import Any

from gramian.core.params import param


def l2_param(one_per: str = "") -> Any:
    """Declare the L2 penalty of item-item weights."""
    about = "L2 penalty on the weights, on the scale of item popularity; usually 10 to 3,000, larger for larger data"
    return param(200.0, about, at_least=0, tries=(10, 30, 100, 300, 1000, 3000), one_per=one_per)


def dropout_param() -> Any:
    """Declare the dropout of a denoising autoencoder."""
    about = "share of the interactions that training hides and must reconstruct; usually 0.1 to 0.9"
    return param(0.3, about, at_least=0, below=1, tries=(0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9))


def max_diagonal_param(default: float) -> Any:
    """Declare the bound on the diagonal of a relaxed autoencoder."""
    about, tries = "upper bound ξ on the diagonal of the weights; usually 0 to 1", tuple(round(0.1 * i, 1) for i in range(11))
    return param(default, about, at_least=0, tries=tries, free=True)


def rank_param() -> Any:
    """Declare the rank of a low-rank or factor model."""
    return param(128, "number of factors", at_least=1, tries=(32, 64, 128, 256, 512))


def epochs_param(default: int = 16) -> Any:
    """Declare the number of epochs."""
    return param(default, "number of training epochs", at_least=1)


def seed_param() -> Any:
    """Declare the seed of a random initialisation."""
    return param(0, "seed of the random initialisation", at_least=0)


def eigenvectors_param() -> Any:
    """Declare the rank of a graph filter's low-pass term."""
    return param(256, "eigenvectors of the low-pass filter", at_least=1, tries=(64, 128, 256, 512))


def low_pass_param(default: float = 0.3) -> Any:
    """Declare the weight of a graph filter's low-pass term."""
    return param(
        default, "weight of the low-pass filter; usually 0 to 1", at_least=0, tries=(0, 0.1, 0.2, 0.3, 0.5, 1), free=True
    )


def neighbours_param() -> Any:
    """Declare how many neighbours an item keeps."""
    return param(100, "similar items kept for each item; usually 20 to 500", at_least=1, tries=(20, 50, 100, 200, 500))


def feature_l2_param(default: float) -> Any:
    """Declare the L2 penalty of weights that are learned from item features."""
    about = "L2 penalty on what is learned from features alone; usually 0.1 to 1,000"
    return param(default, about, at_least=1e-6, tries=(1, 10, 100, 1000))
