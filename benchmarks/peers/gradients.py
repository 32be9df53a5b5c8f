"""One side of `gradients.py throughput`: the seconds of each epoch on gowalla's training set, as JSON.

    python benchmarks/peers/gradients.py recbole bpr 1 FOLDER    # FOLDER has gowalla/gowalla.inter

RecBole trains with its own loader, sampler, trainer and Adam. It has no sampled softmax for these models: that loss is written
here on top of the scores of its BPR model.
"""

# ruff: noqa: PLC0415 - each side runs in its own environment
import json
import sys
import time

RANK, BATCH, EPOCHS = 64, 2048, 3


def gramian(loss: str, n_negatives: int, shared: bool) -> list[float]:
    import numpy as np

    import gramian as gr
    from gramian.gradient import BPR, MF, FactorModel, SampledSoftmax, Uniform

    events = gr.split.published("gowalla").train
    sampler = Uniform(shared=shared)
    loss_class = BPR if loss == "bpr" else SampledSoftmax
    recipe = FactorModel(MF(RANK), loss_class(n_negatives=n_negatives, sampler=sampler), n_epochs=EPOCHS, batch_size=BATCH)
    training = recipe.iterate(events, recipe.initial_state(events, np.float32))
    return [time_call(lambda: next(training)) for _ in range(EPOCHS)]


def recbole(loss: str, n_negatives: int, folder: str) -> list[float]:
    import torch
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import BPR
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    class SampledSoftmax(BPR):
        def calculate_loss(self, interaction):  # RecBole repeats a positive for each of its negatives
            user = self.get_user_embedding(interaction[self.USER_ID])
            positive, negative = (self.get_item_embedding(interaction[f]) for f in (self.ITEM_ID, self.NEG_ITEM_ID))
            negative_scores = (user * negative).sum(1).view(n_negatives, -1)
            positive_scores = (user * positive).sum(1).view(n_negatives, -1)[:1]
            return (torch.cat([positive_scores, negative_scores]).logsumexp(0) - positive_scores[0]).mean()

    settings = {
        "data_path": folder,
        "load_col": {"inter": ["user_id", "item_id"]},
        "embedding_size": RANK,
        "train_batch_size": BATCH * n_negatives,  # RecBole counts a positive once for each negative
        "train_neg_sample_args": {"distribution": "uniform", "sample_num": n_negatives, "dynamic": False},
        "eval_args": {"split": {"RS": [1, 0, 0]}, "group_by": "none", "order": "RO", "mode": "full"},
        "use_gpu": False,
        "show_progress": False,
        "checkpoint_dir": folder,
        "log_wandb": False,
    }
    config = Config(model="BPR", dataset="gowalla", config_dict=settings)
    init_seed(0, reproducibility=False)
    loader, _, _ = data_preparation(config, create_dataset(config))
    model = (BPR if loss == "bpr" else SampledSoftmax)(config, loader._dataset)
    trainer = Trainer(config, model)
    return [time_call(lambda number=number: trainer._train_epoch(loader, number)) for number in range(EPOCHS)]


def time_call(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    side, loss, n_negatives, folder = sys.argv[1:]
    if side == "recbole":
        sys.argv = sys.argv[:1]  # RecBole reads the command line, too
        seconds = recbole(loss, int(n_negatives), folder)
    else:
        seconds = gramian(loss, int(n_negatives), "shared" in side)
    print(json.dumps({"seconds": seconds}))
