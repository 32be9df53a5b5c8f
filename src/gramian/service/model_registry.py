"""The served models by name, loaded from their folders and replaced when a folder is."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gramian.core.recommender import load_model
from gramian.errors import GramianError, InvalidInput, UnknownId
from gramian.io.manifest import FILES
from gramian.linalg.recycled import RecycledMemory, allocate_from
from gramian.linalg.topk import rank_values
from gramian.service import SERVICE_LOG
from gramian.service.served_model import ServedModel

FolderVersion = tuple[int, ...]


class ModelRegistry:
    """Models by the names of their folders.

    A folder that was replaced is loaded beside the old model and swapped in as a whole. A model that cannot be loaded or
    cannot answer never replaces a working one.

    Parameters
    ----------
    folders
        Model folders with different names.
    """

    memory_type: type[RecycledMemory] = RecycledMemory

    def __init__(self, folders: Sequence[Path]) -> None:
        paths = [Path(os.path.abspath(folder)) for folder in folders]  # a link to a folder may be switched to another version
        names = [path.name for path in paths]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None or not names:
            got = "no folder" if repeated is None else f"two folders named {repeated}"
            raise InvalidInput("model folders with different names", got, "Pass each model once")
        self.folders = dict(zip(names, paths, strict=True))
        self.versions = {name: folder_version(folder) for name, folder in self.folders.items()}
        self.models = {name: ServedModel(name, load_model(folder, private=True)) for name, folder in self.folders.items()}
        self.errors: dict[str, str] = {}  # why a model, or a newer version of it on disk, is not served
        self.locks = {name: threading.Lock() for name in names}
        self.memories = {name: self.memory_type() for name in names}  # of the full matrices of item-item models

    def __getitem__(self, name: str | None) -> ServedModel:
        """Return a model by name, or the first one for None."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownId(f"a model among {', '.join(self.models)}", repr(name), "Choose one of them")
        return self.models[name]

    def refresh_model(self, name: str, *, retry: bool = False) -> bool:
        """Load a model again if it changed on disk, with `retry` also if it failed before. Return whether it was replaced."""
        folder = self.folders[name]
        with self.locks[name]:
            return self._refresh_model(name, folder, retry)

    def _refresh_model(self, name: str, folder: Path, retry: bool) -> bool:
        version = folder_version(folder)
        if not retry and version in ((), self.versions[name]):  # absent while it is being replaced, or unchanged
            return False
        if version == self.versions[name] and name not in self.errors:
            return False
        self.versions[name] = version
        try:
            served = ServedModel(name, load_model(folder, private=True))
            self.prepare(served)
            served.warm_up_batch()
        except Exception as error:  # whatever is wrong with the new model, the old one keeps serving
            self.record_failure(name, error)
            return False
        self.publish(served)
        return True

    def prepare(self, served: ServedModel) -> None:
        """Make a model ready to be served: expand its weights and load its kernels. A model that cannot answer fails here."""
        with allocate_from(self.memories[served.name]):
            served.expand_weights()
        served.warm_up()

    def publish(self, served: ServedModel) -> None:
        """Serve a prepared model under its name, in place of the one before."""
        self.models[served.name] = served
        self.errors.pop(served.name, None)

    def announce(self, address: str) -> None:
        """Log where the models are served."""
        SERVICE_LOG.warning("Serving %s at %s", ", ".join(self.models), address)

    def record_failure(self, name: str, error: Exception) -> None:
        """Keep the reason why a model cannot be served, without the path of its folder, which clients must not learn."""
        message = str(error) if isinstance(error, GramianError) else f"{type(error).__name__}: {error}"
        self.errors[name] = message.replace(str(self.folders[name]), name)


def folder_version(folder: Path) -> FolderVersion:
    """Return what changes when a folder is replaced, a link switched or a file overwritten; empty while a file is absent."""
    try:
        files = [(folder / name).stat() for name in FILES]
    except OSError:
        return ()
    return tuple(number for file in files for number in (file.st_mtime_ns, file.st_dev, file.st_ino, file.st_size))


def read_kernels() -> None:
    """Load Numba and the cached kernels that every list needs: the slowest part of a first response."""
    rank_values(np.zeros(1, np.float32), 1, np.ones(1, np.bool_))
