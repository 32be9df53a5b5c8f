"""Files that appear at their path only when they are complete and on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gramian.errors import InvalidInput
from gramian.io.temporary import create_temporary, resolve_destination


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to `path` when the block ends without an error."""
    destination = resolve_destination(path)
    if destination.is_dir() or not destination.parent.is_dir():
        raise InvalidInput("a file name in an existing folder", repr(str(path)), "Choose another name")
    with create_temporary(destination, Path.touch) as temporary:
        yield temporary
        sync(temporary)
        temporary.replace(destination)
    sync(destination.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Windows has no such operation
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of file systems that cannot flush a folder
            raise
    finally:
        os.close(descriptor)
