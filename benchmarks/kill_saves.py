"""Kill saving processes at random moments, and load what they leave: it must be the old or the new model, every time.

    python benchmarks/kill_saves.py                          # 1,000 kills
    python benchmarks/kill_saves.py --kills 30 --two-renames # as on a file system that cannot exchange two folders
    python benchmarks/kill_saves.py --what vectors           # kills while a file is written, as exports do

A child process saves two models in turn without pause, and is killed at a random moment within the time of about three saves.
The parent then loads the folder. In the end one more save must leave nothing but the model. The exit code is 1 if anything else
happened.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.io import replacement
from gramian.io.export import write_factors

N_ITEMS = 400
N_TIMED = 5  # saves that are timed before the first kill
SAVES_PER_CHILD = 3  # about how many saves a child completes before it is killed, at most


def save_model(path: Path, model: gr.Recommender) -> None:
    """Save a model to a folder."""
    model.save(path)


def load_model(path: Path) -> str:
    """Return which of the two models a folder holds."""
    return str(gr.load(path).recipe)


def write_vectors(path: Path, model: gr.Recommender) -> None:
    """Write an array to a file, as an export of vectors does. Exports of lists need threads, which a forked child lacks."""
    write_factors(path, "item", (), {"vector": np.full((1_000, 200), model.recipe.params["l2"])})


def read_vectors(path: Path) -> str:
    """Return what a file holds: one number, if it is complete."""
    (value,) = np.unique(np.load(path))
    return f"vectors of {value:g}"


def save_until_killed(save: Callable[[Path, gr.Recommender], None], path: Path, models: list[gr.Recommender]) -> None:
    """Save two models in turn, without end."""
    while True:
        for model in models:
            save(path, model)


def main(n_kills: int, seed: int, what: str, two_renames: bool) -> int:
    if two_renames:
        replacement.exchange_paths = lambda first, second: False
    events = clustered(500, N_ITEMS, 8_000)
    models = [gr.EASE(l2=l2).fit(events) for l2 in (10, 20)]
    is_model = what == "models"
    save, load, name = (save_model, load_model, "model") if is_model else (write_vectors, read_vectors, "vectors.npy")
    outcomes: Counter[str] = Counter()
    rng, n_leftovers = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        save(path, models[0])
        started = time.perf_counter()
        for _ in range(N_TIMED):
            save(path, models[0])
        max_delay = SAVES_PER_CHILD * (time.perf_counter() - started) / N_TIMED
        for _ in range(n_kills):
            models.reverse()
            child = os.fork()
            if child == 0:
                save_until_killed(save, path, models)
            time.sleep(rng.uniform(0, max_delay))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            n_leftovers += len(os.listdir(folder)) > 1
            try:
                outcomes[f"loaded: {load(path)}"] += 1
            except (gr.errors.GramianError, OSError, ValueError) as error:
                outcomes[f"FAILED: {error}"] += 1
        save(path, models[0])
        remaining = sorted(set(os.listdir(folder)) - {name})
    print(f"{n_kills:,} kills, {n_leftovers:,} in the middle of a save; after the last save, {len(remaining)} files were left")
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:>6,}  {outcome}")
    return int(bool(remaining) or any(outcome.startswith("FAILED") for outcome in outcomes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", dest="n_kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", choices=("models", "vectors"), default="models")
    parser.add_argument("--two-renames", action="store_true", help="do not exchange folders in one step")
    sys.exit(main(**vars(parser.parse_args())))
