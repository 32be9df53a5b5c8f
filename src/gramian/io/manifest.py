"""The manifest of a saved folder: its format and kind, the facts of the object, and size and sha256 of the other files.

It carries a checksum of itself, so that an edited manifest, or one of another program, is never taken for ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from gramian.errors import DamagedFile, NotSupported
from gramian.validation import is_number

FOLDER_FORMAT = 2  # 1 was written by version 0.1 and is still read
MANIFEST, ARRAYS, IDS = "manifest.json", "arrays.safetensors", "ids.json"
FILES = (MANIFEST, ARRAYS, IDS)  # of every saved folder, and no others
MAX_MANIFEST_BYTES = 1 << 24  # facts are a few hundred bytes; larger data belongs into arrays
MAX_DEPTH = 32  # levels of nested lists and objects; recipes have four

SizeAndDigest = tuple[int, str]


def encode_manifest(kind: str, facts: Mapping[str, Any], files: Mapping[str, SizeAndDigest]) -> bytes:
    """Return the manifest of a folder as JSON. Raises `NotSupported` for facts that `decode_manifest` would refuse."""
    manifest = {"format": FOLDER_FORMAT, "kind": kind, "facts": dict(facts), "files": dict(files)}
    text = json.dumps(manifest | {"checksum": _manifest_checksum(manifest)}, indent=2).encode()
    if len(text) > MAX_MANIFEST_BYTES or not is_plain(manifest):
        expected = f"facts of at most {MAX_MANIFEST_BYTES:,} bytes and {MAX_DEPTH} levels, with numbers that a float can hold"
        raise NotSupported(expected, "others", "Keep large data in arrays")
    return text


def decode_manifest(text: bytes, path: Path, kind: str) -> dict[str, Any]:
    """Return the checked manifest of the folder at `path`. Raises `DamagedFile`; malformed JSON may raise other errors."""
    manifest: dict[str, Any] = json.loads(text)
    if not isinstance(manifest, dict) or not is_plain(manifest):
        raise ValueError("not a manifest")
    checksum = manifest.pop("checksum")
    if type(manifest["format"]) is not int or not 1 <= manifest["format"] <= FOLDER_FORMAT:
        raise DamagedFile(
            f"format {FOLDER_FORMAT} or older in {path}", f"format {str(manifest['format'])[:20]}", "Upgrade gramian to read it"
        )
    if checksum != _manifest_checksum(manifest):
        raise DamagedFile(f"an untouched {MANIFEST} in {path}", "one edited after saving", f"Save the {kind} again")
    if manifest["kind"] != kind:
        saved_kind = str(manifest["kind"])[:20]
        raise DamagedFile(f"a saved {kind} at {path}", f"a saved {saved_kind}", f"Load it as a {saved_kind}")
    if set(manifest["files"]) != {ARRAYS, IDS} or not isinstance(manifest["facts"], dict):
        raise DamagedFile(f"exactly {ARRAYS} and {IDS} in the manifest of {path}", "others", f"Save the {kind} again")
    return manifest


def is_plain(value: Any) -> bool:
    """Whether JSON is nested at most `MAX_DEPTH` deep, and its integers fit into a float. Does not recurse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if not all(is_number(v) for v in level if type(v) is int):
            return False
        lists = [v for v in level if isinstance(v, list | tuple)]
        objects = [v.values() for v in level if isinstance(v, dict)]
        level = [v for children in (*lists, *objects) for v in children]
        if not level:
            return True
    return False


def _manifest_checksum(manifest: Mapping[str, Any]) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
