"""Temporary files and folders beside their destination, and the deletion of those that killed processes left.

A temporary path is named after its destination, as in `.model.gramian-0123456789abcdef.part`, and locked while it is written.
One that no process has locked was left by a kill, and is deleted before the next write to the same destination. The parent
folder is locked for the moments in which temporary paths are made, exchanged and deleted.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gramian.errors import InvalidInput
from gramian.io.locks import hold_lock, lock_descriptor
from gramian.io.manifest import FILES
from gramian.io.regular_file import SAFE_FLAGS

NEW, OLD = ".part", ".old"  # being written; moved away to make room


def resolve_destination(path: str | Path) -> Path:
    """Return the absolute path of a file or folder to write. Links and ".." in its parents are resolved, its name is kept.

    Raises `InvalidInput` for a path that the system cannot have, such as one with too long a name.
    """
    path = Path(path)
    try:
        resolved = path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.lstat(temporary_path(resolved, NEW))
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        got = f"{str(path)[:40]!r} of {len(str(path))} characters ({error.args[-1]})"
        raise InvalidInput("a path that this system can have", got, "Choose a shorter or another path") from None
    return resolved


def temporary_path(path: Path, suffix: str) -> Path:
    """Return a new hidden path beside `path`."""
    return path.parent / f".{path.name}.gramian-{secrets.token_hex(8)}{suffix}"


def find_temporary_paths(path: Path, suffix: str) -> list[Path]:
    """Return the paths that `temporary_path` made for the same destination and suffix."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.gramian-[0-9a-f]{{16}}{re.escape(suffix)}")
    try:
        return [path.parent / name for name in os.listdir(path.parent) if pattern.fullmatch(name)]
    except OSError:
        return []


@contextmanager
def create_temporary(path: Path, create: Callable[[Path], None]) -> Iterator[Path]:
    """Make a temporary file or folder beside `path`, and yield it. If it still exists when the block ends, it is deleted.

    Parameters
    ----------
    path
        The destination.
    create
        `Path.touch` for a file, `Path.mkdir` for a folder.
    """
    with ExitStack() as stack:
        with hold_lock(path.parent):
            _delete_abandoned(path)
            temporary = temporary_path(path, NEW)
            create(temporary)
            stack.enter_context(hold_lock(temporary))
        try:
            yield temporary
        finally:
            _delete(temporary)


def delete_abandoned(path: Path) -> None:
    """Delete temporary files that killed processes left beside `path`. Those of running processes are locked, and stay."""
    with hold_lock(path.parent):
        _delete_abandoned(path)


def _delete_abandoned(path: Path) -> None:
    old_folders = find_temporary_paths(path, OLD) if os.path.lexists(path) else []  # else one of them is still needed
    for leftover in (*find_temporary_paths(path, NEW), *old_folders):
        with suppress(OSError):
            descriptor = os.open(leftover, SAFE_FLAGS)
            try:
                if lock_descriptor(descriptor, wait=False):
                    _delete(leftover)
            finally:
                os.close(descriptor)


def delete_saved_files(folder: Path) -> None:
    """Delete the files that `save` writes, and the folder if it is empty then. Any other file stays."""
    with suppress(OSError):
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _delete(temporary: Path) -> None:
    if temporary.is_dir():
        delete_saved_files(temporary)
    else:
        temporary.unlink(missing_ok=True)
