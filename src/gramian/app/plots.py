"""Pictures for files, by Matplotlib, which is only imported to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gramian.errors import InvalidInput, NotSupported
from gramian.store import appearing
from gramian.tuning.rank_path import RankPath

FORMATS = (".svg", ".png", ".pdf")


def plots(file: Path) -> Callable[[Sequence[RankPath], str], None]:
    """What draws quality against rank to a file. That it can is checked before any work is done."""
    if file.suffix not in FORMATS or not file.absolute().parent.is_dir():
        wanted = f"a picture's name, ending in {', '.join(FORMATS)}, in a folder that is there"
        raise InvalidInput(wanted, str(file), "Choose another name")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise NotSupported("Matplotlib, for pictures", "no such package", "Install gramian[plot]") from None

    def draw(paths: Sequence[RankPath], metric: str) -> None:
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for path in paths:
            frame = path.frame()
            errors = frame[f"{metric} stderr"] if f"{metric} stderr" in frame.columns else None
            axes.errorbar(frame["rank"], frame[metric], errors, marker="o", capsize=2, label=path.name)
        axes.set_xscale("log", base=2)
        axes.set_xticks([int(rank) for rank in paths[0].reports], [str(rank) for rank in paths[0].reports])
        axes.set_xlabel("rank")
        axes.set_ylabel(metric)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        with appearing(file) as part:
            figure.savefig(part, format=file.suffix[1:])

    return draw
