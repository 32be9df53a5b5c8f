"""Models trained by gradients: ranking quality, and training speed compared with RecBole.

    python benchmarks/gradients.py choose gowalla mine+         # train and evaluate on a validation split, to choose parameters
    python benchmarks/gradients.py quality gowalla mine+        # train on the training set, evaluate on the test set; resumes
    python benchmarks/gradients.py paired gowalla ccl           # debiased against biased, with the models that `quality` saved
    python benchmarks/gradients.py draws                        # own draws against shared ones: BPR on ml-1m, validation
    python benchmarks/gradients.py throughput                   # seconds per epoch, ours and RecBole in turn on one machine
    python benchmarks/gradients.py propagation                  # LightGCN's propagation, ours and PyTorch's in turn

The learning rate is halved every second epoch of the last third, a schedule fixed beforehand. Parameters were chosen on
validation splits of the training sets of gowalla (for CCL also of its 15-core) and, for MINE+, of yelp2018. The test set is
evaluated every few epochs to show the curve; nothing is chosen by it unless the README says so.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numba
import torch
from journal import append
from peers import python_of, run_script

import gramian as gr
from gramian.core.epochs import Epoch
from gramian.gradient import BPR, CCL, MF, ByPopularity, Debias, Everything, FactorModel, LightGCN, MINEPlus, Uniform
from gramian.gradient.encoder import LightGCNEncoder, TableGradients, scatter_rows
from gramian.gradient.encoders import make_encoder
from gramian.gradient.graph import EdgePattern

HERE = Path(__file__).parent
SCRATCH = HERE / ".scratch"
METRICS = ("recall@20", "ndcg@20")


def recipe_for(loss: Any, n_epochs: int = 30, cosine: bool = True, **params: Any) -> FactorModel:
    backbone = MF(rank=64, cosine=cosine)
    return FactorModel(backbone, loss, n_epochs=n_epochs, halve_after=2, **({"learning_rate": 5e-3} | params))


SHARED = Uniform(shared=True)  # the draws of the recorded runs but for those with own draws
SMALL_STEPS: dict[str, Any] = {"batch_size": 512, "learning_rate": 3e-3}
EXACT = CCL(margin=0.4, weight=150, sampler=Everything())
# "printed": the parameters that Jin and Li (2023) print. "exact": every item is a negative.
RECIPES = {
    ("gowalla", "mine+ printed"): recipe_for(MINEPlus(temperature=0.4, weight=1.2, sampler=SHARED), 15),
    ("yelp2018", "mine+ printed"): recipe_for(MINEPlus(temperature=0.5, weight=1.1, sampler=SHARED), 15),
    ("gowalla", "mine+"): recipe_for(MINEPlus(temperature=0.1, weight=1.2, sampler=SHARED), 36),
    ("yelp2018", "mine+"): recipe_for(MINEPlus(temperature=0.15, weight=1.1, sampler=SHARED)),
    ("gowalla", "ccl"): recipe_for(CCL(margin=0.7, weight=100, sampler=SHARED), 30, **SMALL_STEPS),
    ("yelp2018", "ccl"): recipe_for(CCL(margin=0.7, weight=100, sampler=SHARED), 18, **SMALL_STEPS),
    ("gowalla", "ccl short"): recipe_for(
        CCL(margin=0.7, weight=100, sampler=SHARED), 12, **SMALL_STEPS
    ),  # as many epochs as the debiased one
    ("yelp2018", "ccl short"): recipe_for(CCL(margin=0.7, weight=100, sampler=SHARED), 9, **SMALL_STEPS),
    ("gowalla", "ccl debiased"): recipe_for(
        CCL(margin=0.7, weight=100, sampler=SHARED, debiased=Debias(positives=20)), 12, **SMALL_STEPS
    ),
    ("yelp2018", "ccl debiased"): recipe_for(
        CCL(margin=0.7, weight=100, sampler=SHARED, debiased=Debias(positives=10)), 9, **SMALL_STEPS
    ),
    ("gowalla", "ccl exact"): recipe_for(EXACT, 24, learning_rate=1e-3),
    ("gowalla", "ccl exact debiased"): recipe_for(replace(EXACT, debiased=Debias()), 24, learning_rate=1e-3),
    ("gowalla", "ccl exact wider"): recipe_for(replace(EXACT, margin=0.6, weight=200), 36, learning_rate=1e-3),
    ("gowalla", "bpr"): recipe_for(
        BPR(n_negatives=256, sampler=ByPopularity(power=0.5, shared=True)), 27, cosine=False, l2=1e-3
    ),
    # Own draws, with the sizes of the public configurations of SimpleX (CCL) and BARS (BPR).
    ("gowalla", "ccl own"): recipe_for(CCL(margin=0.9, weight=150), 40, batch_size=256, learning_rate=1.5e-3),
    ("yelp2018", "ccl own"): recipe_for(CCL(margin=0.9, weight=150), 40, batch_size=512, learning_rate=1.5e-3),
    ("gowalla", "bpr own"): recipe_for(BPR(n_negatives=300), 40, cosine=False, batch_size=256, learning_rate=1e-3),
    ("yelp2018", "bpr own"): recipe_for(BPR(n_negatives=300), 40, cosine=False, batch_size=256, learning_rate=1e-3),
    ("yelp2018", "bpr"): recipe_for(
        BPR(n_negatives=256, sampler=ByPopularity(power=0.5, shared=True)), 18, cosine=False, l2=1e-3
    ),
}
PAIRS = {"ccl": ("ccl debiased", "ccl short"), "ccl exact": ("ccl exact debiased", "ccl exact")}


def epochs_on_schedule(recipe: FactorModel, events: gr.Interactions, scratch: Path) -> Iterator[Epoch]:
    """Train on the fixed schedule: send validation scores that improve for two thirds of the epochs, and then stay the same."""
    epochs, validation_score = recipe.epochs(events, scratch=scratch), None
    while True:
        try:
            epoch = epochs.send(validation_score)
        except StopIteration:
            return
        yield epoch
        validation_score = float(min(epoch.number, recipe.n_epochs * 2 // 3))


def choose(data: str, loss: str) -> None:
    validation = gr.split.weak(gr.split.published(data).train, validation=0, test=0.1, seed=1)
    train(RECIPES[data, loss], validation, {"job": "choose", "data": data, "loss": loss}, 5)


def quality(data: str, loss: str, every: int) -> None:
    train(RECIPES[data, loss], gr.split.published(data), {"job": "quality", "data": data, "loss": loss}, every)


def train(recipe: FactorModel, split: gr.Split, row: dict[str, Any], every: int) -> None:
    name = f"{row['job']} {row['data']} {row['loss']}"
    curve, seconds, started = {}, 0.0, time.perf_counter()
    for epoch in epochs_on_schedule(recipe, split.train, SCRATCH / name):
        seconds += time.perf_counter() - started
        if epoch.number % every == 0 or epoch.number == recipe.n_epochs:
            curve[epoch.number] = gr.evaluate(epoch.model, split, METRICS).mean
            print(f"{epoch.number:>3} | {epoch.objective:.4f} | {seconds:6.0f} s | {curve[epoch.number]}", flush=True)
        started = time.perf_counter()
    epoch.model.save(SCRATCH / f"{name} model")
    append("gradients", row | {"recipe": recipe.to_json(), "seconds": seconds, "curve": curve, **curve[recipe.n_epochs]})


def paired(data: str, loss: str) -> None:
    split = gr.split.published(data)
    models = [gr.load(SCRATCH / f"quality {data} {name} model") for name in PAIRS[loss]]
    reports = [gr.evaluate(model, split, METRICS) for model in models]
    for metric in METRICS:
        comparison = reports[0].compare(reports[1], metric)
        difference = f"{comparison.difference:+.5f} ± {comparison.stderr:.5f}, p = {comparison.p_value:.2g}"
        print(f"{data} {metric}: debiased − biased {difference}")
        append("gradients", {"job": "paired", "data": data, "loss": loss, **vars(comparison)})


def draws(n_epochs: int) -> None:
    """Train BPR with 10 negatives on ml-1m, prepared as in papers/rgx-ml-1m.toml: own draws, and draws shared by a batch."""
    events = gr.datasets.load("ml-1m", min_value=3).k_core(5)
    validation = gr.split.weak(events, validation=0.1, test=0.1, seed=0).validation
    assert validation is not None
    for shared in (False, True):
        loss = BPR(n_negatives=10, sampler=Uniform(shared=shared))
        recipe = FactorModel(MF(rank=64), loss, learning_rate=2e-3, n_epochs=n_epochs)
        row = {"job": "draws", "data": "ml-1m", "loss": "bpr", "shared": shared, "recipe": recipe.to_json()}
        seconds, started, curve = 0.0, time.perf_counter(), {}
        for epoch in recipe.epochs(validation.train, n_threads=1):
            seconds += time.perf_counter() - started
            curve[epoch.number] = gr.evaluate(epoch.model, validation, ["ndcg@10"]).mean["ndcg@10"]
            print(
                f"{'shared' if shared else 'own':<6} | {epoch.number:>3} | {seconds:5.0f} s | {curve[epoch.number]:.4f}",
                flush=True,
            )
            started = time.perf_counter()
        append("gradients", row | {"seconds": seconds, "curve": curve, "ndcg@10": curve[n_epochs]})


def throughput(rounds: int) -> None:
    """Time epochs on gowalla: rank 64, batches of 2,048, uniform negatives, for each interaction or shared by a batch."""
    train = gr.split.published("gowalla").train
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gowalla" / "gowalla.inter"
        path.parent.mkdir()
        lines = (f"{user}\t{item}\n" for user, item in zip(train.rows.tolist(), train.matrix.indices.tolist(), strict=True))
        path.write_text("user_id:token\titem_id:token\n" + "".join(lines))
        for loss, n_negatives in (("bpr", 1), ("softmax", 16)):
            best: dict[str, float] = {}
            for side in ["gramian", "gramian, shared draws", "recbole"] * rounds:
                python = python_of("recbole") if side == "recbole" else sys.executable
                python_path = os.environ.get("PYTHONPATH", "")
                measured = run_script(python, "gradients.py", side, loss, n_negatives, folder, PYTHONPATH=python_path)
                best[side] = min(best.get(side, inf), *measured["seconds"])
            for side, seconds in best.items():
                ratio = best["recbole"] / seconds
                print(f"{loss}, {n_negatives} negatives | {side:<22} | {seconds:6.2f} s an epoch | {ratio:.2f} ×", flush=True)
                row = {"job": "throughput", "loss": loss, "n_negatives": n_negatives, "side": side}
                append("gradients", row | {"seconds": seconds, "ratio": ratio})


def propagation(rounds: int) -> None:
    """Time what LightGCN adds to a step on gowalla: encode a batch of 2,048 with one negative each, and take gradients back.

    PyTorch's side multiplies its sparse CSR tensors by all vectors in every layer, as this library did before.
    """
    x, device = gr.split.published("gowalla").train.matrix, torch.device("cpu")
    torch.set_num_threads(numba.get_num_threads())
    generator = torch.Generator().manual_seed(0)
    encoder = make_encoder(LightGCN(rank=64, n_layers=3), x, device, torch.float32)
    assert isinstance(encoder, LightGCNEncoder)
    tables = {name: torch.randn((n, 64), generator=generator) for name, n in zip(("users", "items"), x.shape, strict=True)}
    users = torch.randperm(x.shape[0], generator=generator)[:2048].sort()[0]
    items = torch.randperm(x.shape[1], generator=generator)[:4096].sort()[0]
    gradients = {"users": torch.randn((2048, 64), generator=generator), "items": torch.randn((4096, 64), generator=generator)}
    to_users, to_items = (sparse_tensor(pattern, values) for pattern, values in encoder.graph.weighted_edges())

    def with_our_kernel() -> tuple[torch.Tensor, ...]:
        encoded = encoder.encode(tables, users, items)
        by_table: TableGradients = {"users": (users, gradients["users"]), "items": (items, gradients["items"])}
        encoder.backpropagate(by_table)
        return *encoded, by_table["users"][1], by_table["items"][1]

    def propagate(p: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p_sum, q_sum = p.clone(), q.clone()
        for _ in range(3):
            p, q = to_users @ q, to_items @ p
            p_sum += p
            q_sum += q
        return p_sum / 4, q_sum / 4

    def with_pytorch() -> tuple[torch.Tensor, ...]:
        p, q = propagate(tables["users"], tables["items"])
        by_rows = (
            scatter_rows(rows, gradients[name], len(tables[name])) for name, rows in (("users", users), ("items", items))
        )
        return p[users], q[items], *propagate(*by_rows)

    for ours, theirs in zip(with_our_kernel(), with_pytorch(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    best = {"gramian": inf, "pytorch": inf}
    for _ in range(rounds):
        for side, run in (("gramian", with_our_kernel), ("pytorch", with_pytorch)):
            started = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - started)
    ratio = best["pytorch"] / best["gramian"]
    print(f"{best['gramian'] * 1e3:.0f} ms a step, PyTorch {best['pytorch'] * 1e3:.0f} ms: {ratio:.2f} ×")
    append(
        "gradients",
        {"job": "propagation", "data": "gowalla", "seconds": best["gramian"], "peer": best["pytorch"], "ratio": ratio},
    )


def sparse_tensor(pattern: EdgePattern, values: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that CSR tensors are in beta state
        indptr, columns = torch.from_numpy(pattern.indptr), pattern.columns
        return torch.sparse_csr_tensor(indptr, columns, values, size=pattern.shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    for name in ("choose", "quality", "paired"):
        job = jobs.add_parser(name)
        job.add_argument("data", choices=("gowalla", "yelp2018"))
        job.add_argument("loss", choices=sorted(PAIRS if name == "paired" else {loss for _, loss in RECIPES}))
        if name == "quality":
            job.add_argument("--every", type=int, default=5)
    jobs.add_parser("draws").add_argument("--n-epochs", type=int, default=8)
    jobs.add_parser("throughput").add_argument("--rounds", type=int, default=3)
    jobs.add_parser("propagation").add_argument("--rounds", type=int, default=9)
    arguments = vars(parser.parse_args())
    globals()[arguments.pop("job")](**arguments)
