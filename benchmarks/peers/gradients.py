"""One side of `gradients.py throughput`: epochs of gowalla's train part, timed one by one.

    python benchmarks/peers/gradients.py recbole bpr 1 FOLDER    # that has gowalla/gowalla.inter

RecBole trains with its own loader, sampler, trainer and Adam. It has no sampled softmax for these models: that loss is three
lines over the scores of its BPR model.
"""

# ruff: noqa: PLC0415 - each side has its own environment
import json
import sys
import time

RANK, BATCH, EPOCHS = 64, 2048, 3


def gramian(loss: str, n_negatives: int, shared: bool) -> list[float]:
    import gramian as gr
    from gramian.sampled import BPR, MF, FactorModel, SampledSoftmax, Uniform

    events = gr.split.published("gowalla").train
    sampler = Uniform(shared=shared)
    what = (
        BPR(n_negatives=n_negatives, sampler=sampler)
        if loss == "bpr"
        else SampledSoftmax(n_negatives=n_negatives, sampler=sampler)
    )
    recipe = FactorModel(MF(RANK), what, n_epochs=EPOCHS, batch_size=BATCH)
    training = recipe.improved(events, recipe.first(events, "float32"))
    return [timed(lambda: next(training)) for _ in range(EPOCHS)]


def recbole(loss: str, n_negatives: int, folder: str) -> list[float]:
    import torch
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.general_recommender import BPR
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    class SampledSoftmax(BPR):
        def calculate_loss(self, interaction):  # a positive is repeated for each of its negatives
            user = self.get_user_embedding(interaction[self.USER_ID])
            positive, negative = (self.get_item_embedding(interaction[f]) for f in (self.ITEM_ID, self.NEG_ITEM_ID))
            others = (user * negative).sum(1).view(n_negatives, -1)
            mine = (user * positive).sum(1).view(n_negatives, -1)[:1]
            return (torch.cat([mine, others]).logsumexp(0) - mine[0]).mean()

    settings = {
        "data_path": folder,
        "load_col": {"inter": ["user_id", "item_id"]},
        "embedding_size": RANK,
        "train_batch_size": BATCH * n_negatives,  # which counts a positive once for each negative
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
    return [timed(lambda number=number: trainer._train_epoch(loader, number)) for number in range(EPOCHS)]


def timed(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    side, loss, n_negatives, folder = sys.argv[1:]
    if side == "recbole":
        sys.argv = sys.argv[:1]  # which RecBole would read
        seconds = recbole(loss, int(n_negatives), folder)
    else:
        seconds = gramian(loss, int(n_negatives), "shared" in side)
    print(json.dumps({"seconds": seconds}))
