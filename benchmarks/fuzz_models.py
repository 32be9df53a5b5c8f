"""Damage saved models at random, under valid checksums, and load and use them: a working model or one clear error.

    python benchmarks/fuzz_models.py                     # 1,000,000 cases
    python benchmarks/fuzz_models.py --cases 2000        # as in the tests

Each case changes one thing in the folder of a small model: bytes of the arrays, bytes or values of the ids, values of the
facts, entries of the arrays' header. Size, sha256 and checksum are then computed anew, so that the checks of the content are
reached; in one case of ten they are not, and the folder must be refused. A model that loads must also recommend, find similar
items and explain, or raise an error of the library. Any other error, a crash or a case of more than 20 seconds fails.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io.manifest import ARRAYS, IDS, MANIFEST, encode_manifest

SECONDS_PER_CASE = 20
INFINITY, NOT_A_NUMBER = b"\0\0\x80\x7f", b"\0\0\xc0\x7f"  # in float32
RECIPES = [
    gr.Popularity(),
    gr.EASE(l2=5.0),
    gr.SLIM(l1=1.0, l2=1.0),
    gr.LRR(rank=4, l2=5.0),
    gr.IALS(rank=4, n_epochs=1),
    gr.GFCF(rank=4),
]
SAVED_BY_0_1 = Path(__file__).parents[1] / "tests" / "io" / "saved_by_0_1"  # with a model that was trained with PyTorch


def nest(depth: int) -> list[Any]:
    """Return lists in lists."""
    return [] if depth == 0 else [nest(depth - 1)]


VALUES: list[Any] = [None, True, False, 0, 1, -1, 2, 64, 512, 513, 10**6, 10**12, 2**31, 2**63, 2**64, 10**300, 10**400]
VALUES += [
    0.5,
    -0.0,
    1e-300,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "1",
    "NaN",
    "sNaN",
    "\ud800",
    "\0",
    "../../etc/passwd",
]
VALUES += ["x" * 10_000, [], {}, [[]], [1, 2], {"x": 1}, nest(20), nest(500), "str", "int", "tuple", "Decimal", "date", "UUID"]
VALUES += ["F64", "I32", "BOOL", "product", "EASE", "item-weights", "low-rank", "sum", "network"]


def change_value(rng: random.Random, root: Any) -> Any:
    """Return JSON in which one value, at any depth, is replaced, deleted or repeated."""
    if not isinstance(root, dict | list) or not root or rng.random() < 0.1:
        return rng.choice(VALUES)
    keys = list(root) if isinstance(root, dict) else list(range(len(root)))
    key: Any = rng.choice(keys)
    changed: Any = root.copy()
    choice = rng.random()
    if choice < 0.1:
        del changed[key]
    elif choice < 0.15 and isinstance(root, list):
        changed.append(changed[key])
    elif choice < 0.15:
        changed[rng.choice(["x", "n", "type", "values", "tags", *map(str, keys)])] = changed[key]
    else:
        changed[key] = change_value(rng, changed[key])
    return changed


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return bytes of which a few are changed, deleted or repeated."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at, choice = rng.randrange(len(changed)), rng.random()
        if choice < 0.5:
            changed[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif choice < 0.8:
            changed[at : at + 8] = rng.choice(
                [b"\xff" * 8, b"\0" * 8, b"\0\0\x80\x7f" * 2, b"\0\0\xc0\x7f" * 2, rng.randbytes(8)]
            )
        elif choice < 0.9:
            del changed[at : at + rng.choice([1, 4, 8])]
        else:
            changed[at:at] = changed[at : at + rng.choice([1, 4, 8])]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def change_header(rng: random.Random, content: bytes) -> bytes:
    """Return a safetensors file with one value of its header replaced."""
    start = 8 + int.from_bytes(content[:8], "little")
    text = json.dumps(change_value(rng, json.loads(content[8:start]))).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


class Folder:
    """A saved model in memory, to be written with one change."""

    def __init__(self, path: Path) -> None:
        self.facts = json.loads((path / MANIFEST).read_text())["facts"]
        self.manifest, self.arrays, self.ids = ((path / name).read_bytes() for name in (MANIFEST, ARRAYS, IDS))

    def write_changed(self, rng: random.Random, path: Path) -> bool:
        """Write the folder with one change; return whether the checksums fit."""
        facts, arrays, ids = self.facts, self.arrays, self.ids
        change = rng.choice(["arrays", "arrays", "ids", "values", "facts", "facts", "header"])
        if change == "arrays":
            arrays = change_bytes(rng, arrays)
        elif change == "header":
            arrays = change_header(rng, arrays)
        elif change == "ids":
            ids = change_bytes(rng, ids)
        elif change == "values":
            ids = json.dumps(change_value(rng, json.loads(ids))).encode()
        else:
            facts = change_value(rng, facts)
        is_sealed = change == "facts" or rng.random() < 0.9
        is_unchanged = (arrays, ids) == (self.arrays, self.ids) and change != "facts"
        files = {name: (len(content), sha256(content).hexdigest()) for name, content in ((ARRAYS, arrays), (IDS, ids))}
        manifest = seal(facts, files) if is_sealed else self.manifest
        for name, content in ((MANIFEST, manifest), (ARRAYS, arrays), (IDS, ids)):
            (path / name).write_bytes(content)
        return is_sealed or is_unchanged


def seal(facts: Any, files: dict[str, tuple[int, str]]) -> bytes:
    """Return a manifest with a valid checksum, also for facts that the library would not write."""
    try:
        return encode_manifest("model", facts, files)
    except (gr.errors.NotSupported, TypeError, ValueError, RecursionError):
        manifest = {"format": 2, "kind": "model", "facts": facts, "files": files}
        checksum = sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        return json.dumps(manifest | {"checksum": checksum}).encode()


def use(path: Path) -> str:
    """Load a model and use it; return the outcome. Raises what is not an error of the library."""
    try:
        model = gr.load(path)
    except (gr.errors.DamagedFile, gr.errors.NotRegistered) as error:
        return f"refused: {type(error).__name__}"
    str(model)
    items = model.items[:3]
    for action in (
        lambda: model.recommend_for([items, []], k=3),
        lambda: model.similar_items(items[0]),
        lambda: model.explain(items[1:], items[0]),
    ):
        with suppress(gr.errors.GramianError):
            action()
    return "loaded and used"


def stop_case(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS_PER_CASE} seconds")


def main(n_cases: int, seed: int) -> int:
    warnings.simplefilter("ignore")  # of numbers that are too large; a score that is not finite is another test's subject
    signal.signal(signal.SIGALRM, stop_case)
    outcomes: Counter[str] = Counter()
    n_failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model"
        events = clustered(30, 20, 200).with_titles({item: f"Item {item}" for item in range(20)}).with_tags({0: ["a", "b"]})
        folders = [Folder(SAVED_BY_0_1 / "factor_model")]
        for recipe in RECIPES:
            recipe.fit(events).save(path)
            folders.append(Folder(path))
        for case in range(n_cases):
            rng = random.Random(f"{seed} {case}")
            is_sealed = rng.choice(folders).write_changed(rng, path)
            signal.alarm(SECONDS_PER_CASE)
            try:
                outcome = use(path)
                assert is_sealed or outcome.startswith("refused"), "a folder with wrong checksums was loaded"
            except Exception as error:
                n_failures += 1
                outcome = f"FAILED: {type(error).__name__}"
                print(f"case {case} of seed {seed}:", file=sys.stderr)
                traceback.print_exc()
            finally:
                signal.alarm(0)
            outcomes[outcome] += 1
    print(f"{n_cases:,} cases, {n_failures:,} failures")
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    return int(n_failures > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", dest="n_cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(main(**vars(parser.parse_args())))
