"""A saved object is a folder: manifest.json, arrays.safetensors, ids.json. No pickle; nothing in it can run.

A folder is written beside its destination and then exchanged for what is there, so that a half-written one is never in place.
Only a folder that carries our manifest and holds nothing else is replaced. Arrays are memory-mapped on reading, or copied.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gramian.errors import DamagedFile, InvalidInput, MissingFile, NotEnoughMemory
from gramian.io.atomic import sync
from gramian.io.damage import CONTENT_ERRORS
from gramian.io.ids import decode_ids, encode_ids
from gramian.io.locks import hold_lock
from gramian.io.manifest import ARRAYS, FILES, IDS, MANIFEST, MAX_MANIFEST_BYTES, decode_manifest, encode_manifest
from gramian.io.regular_file import is_regular_file, open_regular_file, read_at_most
from gramian.io.replacement import replace_folder, restore_folder
from gramian.io.safetensors import do_nothing, view_safetensors, write_and_hash, write_safetensors
from gramian.io.temporary import create_temporary, delete_abandoned, delete_saved_files, resolve_destination
from gramian.linalg.memory import require_memory

NOTHING: AbstractContextManager[None] = nullcontext()
MAX_ATTEMPTS = 10  # to open the files of a folder that is replaced meanwhile
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows
FolderContent = tuple[dict[str, Any], dict[str, np.ndarray], dict[str, list[Any]]]  # facts, arrays, ids


def require_writable_folder(path: str | Path, kind: str) -> Path:
    """Return the absolute path if a folder may be written there.

    That is a new path, an empty folder, or a saved object of the same kind without any other file in its folder.
    """
    path = resolve_destination(path)
    restore_folder(path)
    with hold_lock(path.parent):  # other processes may be replacing it
        require_replaceable(path, kind, path)
    return path


def require_replaceable(folder: Path, kind: str, path: Path) -> None:
    """Raise `InvalidInput` unless there is nothing at all, an empty folder or a saved object of this kind.

    Parameters
    ----------
    folder
        Where to look.
    kind
        The kind of object.
    path
        The path that the error names.
    """
    obstacle = _find_obstacle(folder, kind) if os.path.lexists(folder) else None
    if obstacle:
        do = "Choose another path, or move away what is there"
        raise InvalidInput(f"a new folder or a saved {kind} to replace", f"{path}, which {obstacle}", do)


def _find_obstacle(path: Path, kind: str) -> str | None:
    """Return the reason why the path must not be replaced, for an error message; None if it may be."""
    if path.is_symlink() or not path.is_dir() or path == Path.cwd():
        return "is something else"
    names = set(os.listdir(path))
    if not names:
        return None
    try:
        read_manifest(path, kind)
    except (OSError, *CONTENT_ERRORS):
        return "is something else"
    foreign = sorted(name for name in names if name not in FILES or not is_regular_file(path / name))
    return f"also holds {foreign[0]}, not a file of a saved {kind}" if foreign else None


def write_folder(
    path: str | Path,
    kind: str,
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    ids: Mapping[str, list[Any]],
    *,
    proceed: Callable[[], None] = do_nothing,
    replacing: AbstractContextManager[Any] = NOTHING,
) -> None:
    """Write a folder completely or not at all.

    Parameters
    ----------
    path
        Where it will be.
    kind
        The kind of object.
    facts, arrays, ids
        Its content.
    proceed
        Called now and then while the arrays are written. It may raise an error to give up.
    replacing
        A context in which the complete folder is moved to its path.
    """
    path = require_writable_folder(path, kind)
    encoded = json.dumps({name: encode_ids(values) for name, values in ids.items()}).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"a folder at {path.parent}", "a file", "Choose another path") from None
    try:
        with create_temporary(path, Path.mkdir) as new:
            files = {ARRAYS: write_safetensors(new / ARRAYS, arrays, proceed), IDS: write_and_hash(new / IDS, [encoded])}
            write_and_hash(new / MANIFEST, [encode_manifest(kind, facts, files)])
            sync(new)
            with replacing:
                replace_folder(new, path, lambda moved: require_replaceable(moved, kind, path))
    except OSError as error:  # such as a full disk
        reason = f"{error.strerror or error}: the {kind} was not saved, and what was there is unchanged"
        raise OSError(error.errno, reason, str(path)) from error
    sync(path.parent)


def delete_folder(path: Path, kind: str) -> None:
    """Delete a saved object of this kind, and temporary files that killed saves left. Leave anything else as it is."""
    delete_abandoned(path)
    with suppress(InvalidInput), hold_lock(path.parent):
        require_replaceable(path, kind, path)
        delete_saved_files(path)


def read_folder(path: str | Path, kind: str) -> FolderContent:
    """Return the facts, the memory-mapped arrays and the ids of a saved folder, after every check."""
    with open_folder(path, kind) as content:
        return content


@contextmanager
def open_folder(path: str | Path, kind: str, *, private: bool = False) -> Iterator[FolderContent]:
    """Yield the content of a folder while the checksums of its files are computed in threads.

    They are compared when the block ends, so that nothing built from a damaged folder leaves it.

    Parameters
    ----------
    path
        The folder, or a symbolic link to it. Its files must be regular files.
    kind
        The kind of object that was saved.
    private
        Copy the arrays into memory instead of mapping their file. This takes their size in memory. If
        a mapped file is overwritten in place, the arrays change, and if it becomes shorter, the process is killed. A copy stays
        as it was when its checksum was verified.
    """
    path = Path(path)
    if not os.path.exists(path):
        restore_folder(resolve_destination(path))
    if not os.path.exists(path):
        raise MissingFile(f"a saved {kind} at {path}", "nothing there", "Check the path")
    with ThreadPoolExecutor() as pool:
        with _as_damaged_folder(path, kind), _open_files(path) as files:
            manifest = decode_manifest(read_at_most(files[MANIFEST], MAX_MANIFEST_BYTES), path, kind)
            for name, (n_bytes, _) in manifest["files"].items():
                _require_unchanged(path / name, os.fstat(files[name].fileno()).st_size, n_bytes)
            buffer = _copy_file(files[ARRAYS]) if private else np.memmap(files[ARRAYS], np.uint8, mode="c").view(np.ndarray)
            text = files[IDS].read()
            digests = {ARRAYS: pool.submit(_checksum, buffer), IDS: pool.submit(_checksum, text)}
        try:
            with _as_damaged_folder(path, kind):
                ids = {name: decode_ids(encoded) for name, encoded in json.loads(text).items()}
                content = manifest["facts"], view_safetensors(buffer), ids
            yield content
        finally:
            with _as_damaged_folder(path, kind):
                for name, (_, digest) in manifest["files"].items():
                    _require_unchanged(path / name, digests[name].result(), digest)


@contextmanager
def _open_files(path: Path) -> Iterator[dict[str, BinaryIO]]:
    """Yield the open files of a folder, all of one version of it, even if it is being replaced."""
    for _ in range(MAX_ATTEMPTS):
        with ExitStack() as stack:
            try:
                before = path.stat()
                files = {name: stack.enter_context(open_regular_file(path / name)) for name in FILES}
                is_one_version = os.path.samestat(before, path.stat())
            except FileNotFoundError:
                restore_folder(resolve_destination(path))
                continue
            if is_one_version:
                yield files
                return
    raise FileNotFoundError(path)


def read_manifest(path: Path, kind: str) -> dict[str, Any]:
    """Return the manifest of a saved folder, after its own checks."""
    with open_regular_file(path / MANIFEST) as file:
        return decode_manifest(read_at_most(file, MAX_MANIFEST_BYTES), path, kind)


def _copy_file(file: BinaryIO) -> np.ndarray:
    """Return the bytes of a file in memory of this process."""
    n_bytes = os.fstat(file.fileno()).st_size
    require_memory(n_bytes, f"a private copy of {file.name}", "Load it with private=False")
    content = np.frombuffer(mmap.mmap(-1, n_bytes, **PRIVATE), np.uint8)  # np.empty takes huge pages, which may be slow to get
    if file.readinto(content) != n_bytes:  # type: ignore[attr-defined]
        raise ValueError("a file that became shorter")
    return content


@contextmanager
def _as_damaged_folder(path: Path, kind: str) -> Iterator[None]:
    """Turn any error from a folder's files into `DamagedFile`."""
    try:
        yield
    except (DamagedFile, NotEnoughMemory):
        raise
    except (OSError, *CONTENT_ERRORS) as error:
        raise DamagedFile(
            f"a saved {kind} at {path}", f"a folder that is not one ({type(error).__name__})", "Check the path"
        ) from None


def _require_unchanged(file: Path, actual: int | str, saved: int | str) -> None:
    """Compare the size or the checksum of a file with the manifest."""
    if actual != saved:
        raise DamagedFile(f"{file} as it was saved", "a truncated or edited file", "Save it again")


def _checksum(content: Any) -> str:
    return sha256(content).hexdigest()  # one call, which releases the interpreter lock
