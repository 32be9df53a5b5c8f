"""Replacing a folder by a new one, so that a kill at any moment leaves the old or the new one.

Linux exchanges two folders in one step. Elsewhere, and on file systems that cannot, the old folder is moved away first. A kill
between the two renames then leaves nothing at the path: `restore_folder` puts the old folder back, on the next load or save.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from gramian.io.locks import hold_lock
from gramian.io.temporary import OLD, delete_saved_files, find_temporary_paths, temporary_path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux' <fcntl.h> and <linux/fs.h>
NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}  # by the kernel, the file system, or a sandbox


def replace_folder(new: Path, path: Path, require_replaceable: Callable[[Path], None]) -> None:
    """Move a complete folder to `path`, and delete the saved folder that was there.

    Parameters
    ----------
    new
        The new folder, on the same file system.
    path
        The destination, which may exist or not.
    require_replaceable
        Raises an error for a folder that must not be deleted. What was at the path is then put back.
    """
    with hold_lock(path.parent):
        _restore(path)
        if not os.path.lexists(path):
            os.rename(new, path)
            return
        is_exchanged = exchange_paths(new, path)
        old = new if is_exchanged else temporary_path(path, OLD)
        if not is_exchanged:
            os.rename(path, old)
        try:
            require_replaceable(old)
            if not is_exchanged:
                os.rename(new, path)
        except BaseException:
            if is_exchanged:
                exchange_paths(new, path)
            else:
                os.rename(old, path)
            raise
        delete_saved_files(old)


def restore_folder(path: Path) -> None:
    """If nothing is at `path`, put back the folder that a killed process had moved away from there."""
    if not os.path.lexists(path):
        with suppress(OSError), hold_lock(path.parent):  # such as a folder that this process may only read
            _restore(path)


def _restore(path: Path) -> None:
    old_folders = find_temporary_paths(path, OLD)
    if old_folders and not os.path.lexists(path):
        os.rename(max(old_folders, key=lambda folder: folder.lstat().st_ctime_ns), path)


def exchange_paths(first: Path, second: Path) -> bool:
    """Exchange two files or folders in one step. Returns False where the system cannot, and then does nothing."""
    renameat2 = _find_renameat2()
    if renameat2 is None:
        return False
    if renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))


@cache
def _find_renameat2() -> Any:
    """The C library's function; None where it has none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
