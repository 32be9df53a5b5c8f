"""How weights made from counts change the accuracy of EASE and EDLAE: ndcg@20 on a strong split of play counts.

python benchmarks/weights.py lastfm-2k/interactions.parquet --value play_count
"""

import argparse
import warnings

import gramian as gr
from gramian.data.weights import WEIGHTINGS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("path", help="a file of events with a column of counts")
parser.add_argument("--value", default="play_count", help="the column of counts")
parser.add_argument("--k-core", type=int, default=5, help="keep users and items with at least this many interactions")
arguments = parser.parse_args()

with warnings.catch_warnings():
    warnings.simplefilter("ignore", gr.errors.HeavyTailWarning)
    counts = gr.read(arguments.path, value=arguments.value).k_core(arguments.k_core)
models = [gr.Popularity(), gr.EASE(l2=300), gr.EDLAE(dropout=0.5, l2=300)]
print(counts)
print(f"{'weight':10}", *(f"{type(model).__name__:>12}" for model in models))
for weight in (None, *WEIGHTINGS):
    split = gr.split.strong(counts if weight is None else counts.with_weights(weight), seed=0)
    scores = [gr.evaluate(model.fit(split.train), split, metrics=["ndcg@20"])["ndcg@20"] for model in models]
    print(f"{weight or 'none':10}", *(f"{score:12.3f}" for score in scores), flush=True)
