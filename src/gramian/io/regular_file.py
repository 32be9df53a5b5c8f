"""Regular files from a source that is not trusted: nothing is opened that could block, follow a link or never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from gramian.errors import DamagedFile

# A path may become a link or a pipe between the check and the opening. Windows has neither flag.
SAFE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe, device, socket, folder or symbolic link raises `DamagedFile`."""
    _require_regular(path, os.lstat(path))
    file = os.fdopen(os.open(path, SAFE_FLAGS), "rb")
    try:
        _require_regular(path, os.fstat(file.fileno()))
    except DamagedFile:
        file.close()
        raise
    return file


def is_regular_file(path: Path) -> bool:
    """Whether a regular file is at the path, not a link to one."""
    return path.is_file() and not path.is_symlink()


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """Return the content of a file of at most `limit` bytes; raise ValueError for a longer one."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return content


def _require_regular(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise DamagedFile(f"a regular file at {path}", "a link, pipe, device or folder", "Put the file itself there")
