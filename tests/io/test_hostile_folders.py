"""Folders from strangers: everything odd is refused at once, without blocking, looping or reading outside the folder."""

import json
import os
import socket
from hashlib import sha256

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io import folder as folders
from gramian.io.manifest import ARRAYS, FILES, IDS, MANIFEST
from gramian.io.safetensors import view_safetensors, write_safetensors

EVENTS = clustered(60, 30, 600)


@pytest.fixture
def saved(tmp_path):
    gr.EASE(l2=5).fit(EVENTS).save(tmp_path / "m")
    return tmp_path / "m"


def seal(folder, **changes):
    """Rewrite the manifest with changes, under a valid checksum."""
    manifest = json.loads((folder / MANIFEST).read_text()) | changes
    del manifest["checksum"]
    checksum = sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest | {"checksum": checksum}))


def replace_file(folder, name, content):
    """Replace a file and enter its size and sha256 into the manifest."""
    (folder / name).write_bytes(content)
    files = json.loads((folder / MANIFEST).read_text())["files"]
    seal(folder, files=files | {name: [len(content), sha256(content).hexdigest()]})


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have about 100 characters
        server.bind(path.name)
        os.chdir(here)


ODD_FILES = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: os.symlink("/dev/zero", path),
    "a link out of the folder": lambda path: os.symlink("/etc/passwd", path),
    "a link within the folder": lambda path: os.symlink(IDS, path),
    "a link to itself": lambda path: os.symlink(path.name, path),
    "a folder": os.mkdir,
    "a socket": make_socket,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", ODD_FILES.values(), ids=ODD_FILES)
def test_only_regular_files_are_opened(make, name, saved, refused):
    (saved / name).unlink()
    make(saved / name)
    with refused(gr.errors.DamagedFile, "a regular file"):
        gr.load(saved)
    with refused(gr.errors.DamagedFile, "a regular file"):
        gr.load(saved, private=True)


FILE_LISTS = {
    "none": {},
    "one missing": {ARRAYS: [1, "x"]},
    "one more": {ARRAYS: [1, "x"], IDS: [1, "x"], "other": [1, "x"]},
    "a path outside": {ARRAYS: [1, "x"], "../../../etc/passwd": [1, "x"]},
    "a list": [ARRAYS, IDS],
    "no sizes": {ARRAYS: None, IDS: None},
    "null": None,
}


@pytest.mark.parametrize("files", FILE_LISTS.values(), ids=FILE_LISTS)
def test_the_manifest_names_exactly_our_files(files, saved, refused):
    seal(saved, files=files)
    with refused(gr.errors.DamagedFile):
        gr.load(saved)


MANIFESTS = {
    "deep": b"[" * 100_000,
    "deep and complete": b'{"facts": ' + b"[" * 500 + b"]" * 500 + b', "checksum": "x"}',
    "a huge integer": b'{"format": ' + b"9" * 100_000 + b"}",
    "a huge format": b'{"format": 1' + b"0" * 400 + b', "checksum": "x"}',
    "too long": b'{"x": "' + b"x" * (1 << 24) + b'"}',
    "not text": b"\xff\xfe\x00",
    "a string": b'"manifest"',
    "a fraction for the format": b'{"format": 1.5, "checksum": "x"}',
    "true for the format": b'{"format": true, "checksum": "x"}',
}


@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_a_malformed_manifest_is_damage(text, saved, refused):
    (saved / MANIFEST).write_bytes(text)
    with refused(gr.errors.DamagedFile):
        gr.load(saved)


FACTS = {
    "10**12 items": {"n": 10**12, "width": 512},
    "10**12 columns": {"n": 30, "width": 64 * 10**12},
    "more items than 64 bits": {"n": 10**30, "width": 512},
    "more than a float": {"n": 10**400, "width": 512},
    "a fraction": {"n": 30.0, "width": 512},
    "true": {"n": True, "width": 64},
    "infinity": {"n": float("inf"), "width": 512},
    "a list": [30, 512],
    "null": None,
}


@pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS)
def test_declared_sizes_are_compared_with_the_file_before_any_loop(facts, saved, refused):
    saved_facts = json.loads((saved / MANIFEST).read_text())["facts"]
    seal(saved, facts=saved_facts | {"scorer_facts": facts})
    with refused(gr.errors.DamagedFile):
        gr.load(saved)


@pytest.mark.parametrize("card", ["text", [1], 5, True])
def test_a_card_that_is_none_is_refused(card, saved, refused):
    saved_facts = json.loads((saved / MANIFEST).read_text())["facts"]
    seal(saved, facts=saved_facts | {"card": card})
    with refused(gr.errors.DamagedFile):
        gr.load(saved)
    seal(saved, facts=saved_facts | {"card": {"metric": "ndcg@20"}})
    assert gr.load(saved).card == {"metric": "ndcg@20"}


def ids_text(type_name, values):
    return {"items": {"type": type_name, "values": values}}


IDS_TEXTS = {
    "no decimal": ids_text("Decimal", ["many"] * 30),
    "not a number": ids_text("Decimal", ["NaN"] * 30),
    "a signaling NaN": ids_text("Decimal", [f"sNaN{n}" for n in range(30)]),
    "deep tuples": ids_text("tuple", [json.loads("[" * 400 + "]" * 400)] * 30),
    "objects": ids_text("str", [{}] * 30),
    "numbers as text": ids_text("str", list(range(30))),
    "half a surrogate pair": ids_text("str", [f"\ud800{n}" for n in range(30)]),
    "true as a number": ids_text("int", [True, *range(2, 31)]),
    "no list": ids_text("str", "abcdefghijklmnopqrstuvwxyz0123"),
    "no date": ids_text("date", ["2020-13-01"] * 30),
    "an unknown type": ids_text("code", ["print()"] * 30),
    "a list of types": [],
}


@pytest.mark.parametrize("text", IDS_TEXTS.values(), ids=IDS_TEXTS)
def test_ids_that_are_not_what_they_claim_to_be_are_damage(text, saved, refused):
    others = json.loads((saved / IDS).read_text())
    replace_file(saved, IDS, json.dumps(others | text if isinstance(text, dict) else text).encode())
    with refused(gr.errors.DamagedFile):
        gr.load(saved)


def test_deep_ids_are_damage(saved, refused):
    replace_file(saved, IDS, b"[" * 200_000)
    with refused(gr.errors.DamagedFile):
        gr.load(saved)


def header(entries, body=b"\0" * 64):
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS = {
    "empty": b"",
    "too short": b"\x01\0\0",
    "longer than the file": (1 << 40).to_bytes(8, "little"),
    "longer than its limit": (1 << 21).to_bytes(8, "little") + b" " * (1 << 21),
    "deep": (100_000).to_bytes(8, "little") + b"[" * 100_000,
    "no object": header([]),
    "out of range": header({"a": entry("F32", [32], 0, 128)}),
    "negative": header({"a": entry("F32", [16], -64, 0)}),
    "overlapping": header({"a": entry("F32", [8], 0, 32), "b": entry("F32", [10], 24, 64)}),
    "with a gap": header({"a": entry("F32", [4], 0, 16), "b": entry("F32", [8], 32, 64)}),
    "shorter than the body": header({"a": entry("F32", [8], 0, 32)}),
    "of another size": header({"a": entry("F32", [17], 0, 64)}),
    "with a negative shape": header({"a": entry("F32", [-4, -4], 0, 64)}),
    "with a huge shape": header({"a": entry("F32", [10**30, 0], 0, 0), "b": entry("F32", [16], 0, 64)}),
    "with shape true": header({"a": entry("BOOL", [True, 64], 0, 64)}),
    "not aligned": header({"a": entry("I32", [1], 0, 4), "b": entry("F64", [7], 4, 60), "c": entry("I32", [1], 60, 64)}),
    "with a fraction": header({"a": entry("F32", [16.0], 0, 64)}),
    "with an unknown type": header({"a": entry("F8", [64], 0, 64)}),
    "with a list as a type": header({"a": entry([], [64], 0, 64)}),
    "without offsets": header({"a": {"dtype": "F32", "shape": [16]}}),
    "with truth values of 2": header({"a": entry("BOOL", [64], 0, 64)}, b"\2" * 64),
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_a_malformed_header_is_damage(content, saved, refused):
    replace_file(saved, ARRAYS, content)
    for private in (False, True):
        with refused(gr.errors.DamagedFile):
            gr.load(saved, private=private)


def test_arrays_of_every_type_and_shape_are_read_as_written(tmp_path):
    arrays = {
        "flags": np.array([True, False, True]),
        "wide": np.arange(6.0).reshape(2, 3),
        "none": np.empty((0, 5), np.float32),
        "one": np.array(7),
        "narrow": np.arange(3, dtype=np.int32),
    }
    write_safetensors(tmp_path / "a", arrays)
    again = view_safetensors(np.fromfile(tmp_path / "a", np.uint8))
    assert set(again) == set(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_a_folder_that_is_replaced_while_it_is_opened_is_read_whole(tmp_path, monkeypatch):
    models = [gr.EASE(l2=l2).fit(EVENTS) for l2 in (1, 2)]
    models[0].save(tmp_path / "m")
    open_file, opened = folders.open_regular_file, []

    def replace_after_manifest(path):
        file = open_file(path)
        if not opened:
            opened.append(path)
            models[1].save(tmp_path / "m")
        return file

    monkeypatch.setattr(folders, "open_regular_file", replace_after_manifest)
    assert gr.load(tmp_path / "m").recipe == models[1].recipe


def test_a_missing_file_is_named(saved, refused):
    (saved / IDS).unlink()
    with refused(gr.errors.DamagedFile, "FileNotFoundError"):
        gr.load(saved)


@pytest.mark.parametrize("change", [{"exponent": 10**6}, {"l2": 1e300}, {"l2": float("nan")}, {"own": [1e308] * 4}], ids=str)
def test_a_loss_whose_rows_would_overflow_is_damage(change, tmp_path, refused):
    gr.IALS(rank=4, n_epochs=1).fit(EVENTS).save(tmp_path / "m")
    facts = json.loads((tmp_path / "m" / MANIFEST).read_text())["facts"]
    facts["scorer_facts"]["rule"] |= change
    seal(tmp_path / "m", facts=facts)
    with refused(gr.errors.DamagedFile, "coefficients"):
        gr.load(tmp_path / "m")
