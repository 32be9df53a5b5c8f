"""`gramian warm-up`: compile ahead what the first fit on a machine would compile."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from gramian.cli.model_options import complete_model
from gramian.cli.render import print_text
from gramian.core.registry import MODELS
from gramian.data.read import read
from gramian.experiments.trial import warm_up
from gramian.gradient.gradient_recipe import GradientRecipe
from gramian.progress import format_duration, track


def warm_up_command(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models, such as edlae. By default all that need no PyTorch.", autocompletion=complete_model),
    ] = None,
) -> None:
    """Compile the kernels of the models now, once on a machine, instead of during the first fit."""
    chosen = [MODELS.find(name) for name in models or MODELS]
    started = time.perf_counter()
    with TemporaryDirectory() as folder:
        table = Path(folder) / "events.csv"
        table.write_text("user_id,item_id\n1,1\n2,1\n")
        read(table)
    for model in track([model for model in chosen if models or not issubclass(model, GradientRecipe)], "compiling"):
        warm_up(model())
    print_text(f"The kernels are compiled ({format_duration(time.perf_counter() - started)}) and cached on this machine.")
