"""A saved thing is a folder: manifest.json, arrays.safetensors, ids.json. No pickle; nothing in it can run.

The manifest names the format, what kind of thing it is, its facts, and the size and sha256 of the other files, and carries a
checksum of itself. A folder is written beside its place and renamed into it, so a half-written
one is never in place.
Arrays are memory-mapped on reading. The safetensors format (8 bytes of header length, a JSON header, raw arrays) is written
here by hand, because the package's writer would copy every array in memory first.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from gramian.errors import DamagedFile, InvalidInput, MissingFile, NotSupported

FORMAT = 1
MANIFEST, ARRAYS, IDS = "manifest.json", "arrays.safetensors", "ids.json"
DTYPES = {"F64": np.float64, "I64": np.int64, "F32": np.float32, "I32": np.int32, "BOOL": np.bool_}
CHUNK = 1 << 24
Saved = tuple[dict[str, Any], dict[str, np.ndarray], dict[str, list[Any]]]  # facts, arrays, ids


def place(path: str | Path, kind: str) -> Path:
    """Where a folder can be written: at a new path, or over one that was saved."""
    path = Path(path).absolute()
    foreign = path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).exists()
    if foreign or path == Path.cwd() or path.is_symlink() or path.is_file():
        raise InvalidInput(
            f"a new folder or a saved {kind} to replace", f"{path}, which is something else", "Choose another path"
        )
    return path


def write(
    path: str | Path, kind: str, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], ids: Mapping[str, list[Any]]
) -> None:
    """Write a folder whole or not at all."""
    path = place(path, kind)
    encoded = json.dumps({name: encode(values) for name, values in ids.items()}).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"a folder at {path.parent}", "a file", "Choose another path") from None
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        manifest = {
            "format": FORMAT,
            "kind": kind,
            "facts": dict(facts),
            "files": {ARRAYS: _write_arrays(fresh / ARRAYS, arrays), IDS: _write_file(fresh / IDS, [encoded])},
        }
        _write_file(fresh / MANIFEST, [json.dumps(manifest | {"checksum": _seal(manifest)}, indent=2).encode()])
        os.chmod(fresh, 0o755)
        _replace(path, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read(path: str | Path, kind: str) -> Saved:
    """The facts, the memory-mapped arrays and the ids of a saved folder, after every check."""
    with opened(path, kind) as found:
        return found


@contextmanager
def opened(path: str | Path, kind: str) -> Iterator[Saved]:
    """What `read` gives, to make something of it while the checksums of large files are computed.

    They are compared at the end: nothing that was made of a damaged folder gets out.
    """
    path = Path(path)
    if not path.exists():
        raise MissingFile(f"a saved {kind} at {path}", "nothing there", "Check the path")
    with ThreadPoolExecutor() as aside:
        with _whole(path, kind):
            manifest = _manifest(path, kind)
            for name, (n_bytes, _) in manifest["files"].items():
                _same(path / name, (path / name).stat().st_size, n_bytes)
            digests = {name: aside.submit(_digest, path / name) for name in manifest["files"]}
        try:
            with _whole(path, kind):
                ids = {name: decode(part) for name, part in json.loads((path / IDS).read_bytes()).items()}
                found = manifest["facts"], _map_arrays(path / ARRAYS), ids
            yield found
        finally:
            with _whole(path, kind):
                for name, (_, digest) in manifest["files"].items():
                    _same(path / name, digests[name].result(), digest)


@contextmanager
def _whole(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever goes wrong with the files of a folder into one error."""
    try:
        yield
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(
            f"a saved {kind} at {path}", f"a folder that is not one ({type(error).__name__})", "Check the path"
        ) from None


def _manifest(path: Path, kind: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    checksum = manifest.pop("checksum")
    if not isinstance(manifest["format"], int) or manifest["format"] > FORMAT:
        raise DamagedFile(f"format {FORMAT} or older in {path}", f"format {manifest['format']}", "Upgrade gramian to read it")
    if checksum != _seal(manifest):
        raise DamagedFile(f"an untouched {MANIFEST} in {path}", "one edited after saving", f"Save the {kind} again")
    if manifest["kind"] != kind:
        raise DamagedFile(f"a saved {kind} at {path}", f"a saved {manifest['kind']}", f"Load it as a {manifest['kind']}")
    return manifest


def _same(file: Path, found: int | str, saved: int | str) -> None:
    """The size of a file, or its checksum."""
    if found != saved:
        raise DamagedFile(f"{file} as it was saved", "a truncated or edited file", "Save it again")


@contextmanager
def damage_in(path: str | Path) -> Iterator[None]:
    """Turn whatever goes wrong with a folder's content into one error: a valid checksum does not make content sound."""
    try:
        yield
    except DamagedFile:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__} in its content: {error}"
        raise DamagedFile(f"a sound saved folder at {path}", reason, "Save it again with this version of gramian") from None


def require(condition: bool, what: str) -> None:
    if not condition:
        raise DamagedFile(what, "something else", "Save it again")


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Where to write a file that appears at its path only when it is whole."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidInput("a name for a file in a folder that is there", repr(str(path)), "Choose another name")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _replace(path: Path, fresh: Path) -> None:
    if not path.exists():
        os.rename(fresh, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
    try:
        os.rename(path, old / "was")
        os.rename(fresh, path)
    finally:
        if not path.exists():
            os.rename(old / "was", path)
        shutil.rmtree(old, ignore_errors=True)


def _write_file(path: Path, parts: list[Any]) -> tuple[int, str]:
    digest, n_bytes = sha256(), 0
    with open(path, "xb") as file:
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), CHUNK):
                digest.update(view[start : start + CHUNK])
                file.write(view[start : start + CHUNK])
            n_bytes += len(view)
        file.flush()
        os.fsync(file.fileno())
    return n_bytes, digest.hexdigest()


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[int, str]:
    code = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {}
    parts, at = [], 0
    for name in sorted(arrays, key=lambda name: -arrays[name].itemsize):  # widest first keeps every array aligned
        array = np.ascontiguousarray(arrays[name])
        header[name] = {"dtype": code[array.dtype], "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        parts += [array.reshape(-1)] if array.size else []
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return _write_file(path, [len(text).to_bytes(8, "little") + text, *parts])


def _map_arrays(path: Path) -> dict[str, np.ndarray]:
    raw = np.memmap(path, np.uint8, mode="c").view(np.ndarray)  # pages are shared and private once written
    length = int.from_bytes(raw[:8].tobytes(), "little")
    body = raw[8 + length :]
    return {
        name: body[slice(*entry["data_offsets"])].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in json.loads(raw[8 : 8 + length].tobytes()).items()
    }


def _digest(path: Path) -> str:
    with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return sha256(content).hexdigest()  # in one call, which leaves Python to others meanwhile


def _seal(manifest: Mapping[str, Any]) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value


SAME: Callable[[Any], Any] = lambda value: value  # noqa: E731
CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "str": (SAME, SAME),
    "int": (SAME, SAME),
    "float": (SAME, SAME),
    "bool": (SAME, SAME),
    "tuple": (SAME, _tuple),
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "datetime": (dt.datetime.isoformat, dt.datetime.fromisoformat),
    "UUID": (str, uuid.UUID),
    "Decimal": (str, decimal.Decimal),
}


def encode(values: list[Any]) -> dict[str, Any]:
    """Ids of one type as JSON that gives the same ids back."""
    kind = type(values[0]).__name__ if values else "str"
    if kind not in CODECS:
        raise NotSupported(f"ids of a type that can be saved ({', '.join(CODECS)})", kind, "Use str or int ids")
    return {"type": kind, "values": [CODECS[kind][0](value) for value in values]}


def decode(part: Mapping[str, Any]) -> list[Any]:
    read, values = CODECS[part["type"]][1], part["values"]
    return list(values) if read is SAME else [read(value) for value in values]
