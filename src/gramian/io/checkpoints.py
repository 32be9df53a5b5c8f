"""Checkpoints of a training: two folders written in turn, of which one is always complete."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gramian.errors import DamagedFile, InvalidInput, MissingFile, RestartWarning
from gramian.io.damage import report_damage
from gramian.io.folder import delete_folder, read_folder, require_replaceable, write_folder
from gramian.io.temporary import temporary_path

CHECKPOINTS = ("gramian-epoch-even", "gramian-epoch-odd")
SCRATCH_FOLDERS = {  # names in a scratch folder → the kind of object: checkpoints, and the results of an epoch path
    r"gramian-epoch-(even|odd)": "checkpoint",
    r"gramian-report-\d+": "report",
    r"gramian-best": "model",
}


@dataclass(frozen=True)
class Checkpoint:
    """What a training needs to continue after an epoch: arrays, the objective and a few facts."""

    epoch: int
    arrays: dict[str, np.ndarray]
    objective: float
    facts: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(folder: Path, key: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Write a checkpoint over the older of the two. `key` identifies the training."""
    facts = {"key": key, "epoch": checkpoint.epoch, "objective": checkpoint.objective, "facts": checkpoint.facts}
    write_folder(folder / CHECKPOINTS[checkpoint.epoch % 2], "checkpoint", facts, checkpoint.arrays, {})


def load_latest_checkpoint(folder: Path, key: dict[str, Any]) -> Checkpoint | None:
    """Return the newest valid checkpoint, or None. If the newest is damaged, warn and return the previous one."""
    checkpoints, damaged = [], {}
    for name in CHECKPOINTS:
        try:
            facts, arrays, _ = read_folder(folder / name, "checkpoint")
            with report_damage(folder / name):
                checkpoint = Checkpoint(int(facts["epoch"]), arrays, facts["objective"], facts["facts"])
                saved_key = facts["key"]
        except MissingFile:
            continue
        except DamagedFile as error:
            damaged[folder / name] = error
            continue
        if saved_key != key:
            raise InvalidInput(
                f"the scratch folder of this training in {folder}", "that of another training", "Choose a new folder"
            )
        checkpoints.append(checkpoint)
    for path, problem in damaged.items():
        if not checkpoints:
            raise problem
        warnings.warn(f"{problem} Continuing from the epoch before.", RestartWarning, stacklevel=4)
        _set_aside_damaged(path)
    return max(checkpoints, key=lambda checkpoint: checkpoint.epoch, default=None)


def _set_aside_damaged(path: Path) -> None:
    """Rename a checkpoint whose manifest is too damaged for the next save to recognise and replace it."""
    try:
        require_replaceable(path, "checkpoint", path)
    except InvalidInput:
        path.rename(temporary_path(path, ".damaged"))


def clear_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a training, and the reports and best model of an epoch path. Leave all other files."""
    paths = list(folder.iterdir()) if folder.is_dir() else []
    for pattern, kind in SCRATCH_FOLDERS.items():
        for path in paths:
            if re.fullmatch(pattern, path.name):
                delete_folder(path, kind)
