"""Print the estimated and the measured peak memory of a fit of every registered model, a line of JSON each, for test_memory.py.

The peak is the most resident memory during the fit above that before it (Linux). Parameters are the defaults, with two epochs.
"""

import gc
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import gramian as gr
from gramian.data.synthetic import clustered

OTHERS = {"NuclearNormMF": {"l2": 25.0}}  # it chooses its rank, and the estimate is for a small one
USERS, ITEMS, INTERACTIONS, FEATURES = 3_000, 2_000, 60_000, 64
FEW_USERS = " of few users"  # behind a name: with USERS and ITEMS exchanged, a full-rank model inverts the users' matrix


def resident_bytes(line):
    """VmRSS, or VmHWM for its peak."""
    return 1024 * int(Path("/proc/self/status").read_text().split(line + ":")[1].split()[0])


def peak_of(job):
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    before = resident_bytes("VmRSS")
    job()
    return resident_bytes("VmHWM") - before


def describe(events):
    """The events with features of their items and with times, for models that learn from them."""
    vectors = np.random.default_rng(0).standard_normal((events.n_items, FEATURES))
    events = events.with_features(gr.Features.of(vectors, items=events.items.tolist()))
    return replace(events, times=np.arange(events.n_interactions))


def main(names):
    warnings.simplefilter("ignore")
    events, tiny = (describe(clustered(*sizes)) for sizes in ((USERS, ITEMS, INTERACTIONS), (400, 300, 9_000)))
    wide, wide_tiny = (clustered(*sizes) for sizes in ((ITEMS, USERS, INTERACTIONS), (60, 2_500, 2_500)))
    for name in names:
        if name.endswith(FEW_USERS):
            events, tiny = wide, wide_tiny
        model = gr.MODELS.find(name.removesuffix(FEW_USERS))
        epochs = {"n_epochs": 2} if "n_epochs" in model().params else {}
        recipe = replace(model(), **epochs, **OTHERS.get(name, {}))
        recipe.fit(tiny)  # compiles kernels and starts threads
        estimate = recipe.estimate(events).peak_bytes
        peak = peak_of(lambda recipe=recipe, events=events: recipe.fit(events))
        print(json.dumps([name, estimate, peak]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [*gr.MODELS, "EASE" + FEW_USERS, "DAN" + FEW_USERS])
