"""Data, losses and recipes that the tests of models trained by gradients share."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

import gramian as gr
from gramian.gradient import (
    BCE,
    BPR,
    CCL,
    CDAE,
    CML,
    DGCF,
    GAT,
    MF,
    MINE,
    MSE,
    NGCF,
    SGL,
    SML,
    UIB,
    Debias,
    Everything,
    FactorModel,
    InfoNCE,
    LightGCN,
    MeanDifference,
    MINEPlus,
    MultDAE,
    MultVAE,
    PinSage,
    RG2Loss,
    SampledSoftmax,
    SimpleX,
    Softmax,
    Sparsemax,
    YouTubeNet,
)

RNG = np.random.default_rng(7)
M, N = 60, 24  # users and items of EVENTS
X = sp.csr_array((RNG.random((M, N)) < 0.15 + 0.5 * (np.arange(M)[:, None] % 3 == np.arange(N) % 3)).astype(np.float32))
# Users and items are of three groups, by their number modulo 3; interactions within a group are frequent.
EVENTS = gr.Interactions.of(X)
GROUPS = gr.Interactions.of(
    sp.csr_array((RNG.random((150, 60)) < 0.02 + 0.3 * (np.arange(150)[:, None] % 3 == np.arange(60) % 3)).astype(np.float32))
)
SKEWED = gr.Interactions.of(sp.csr_array((RNG.random((90, N)) < np.linspace(0.02, 0.9, N) ** 2).astype(np.float32)))
NEW_HISTORIES = [[0, 3, 9], [1, 4, 10, 13], [2]]
BIASED_LOSSES = [
    Softmax(temperature=0.7),
    SampledSoftmax(temperature=0.7),
    BPR(temperature=0.8),
    BCE(),
    Sparsemax(),
    UIB(margin=0.3),
    SML(margin=0.8, item_weight=0.4, margin_weight=0.7),
    CML(margin=0.6),
    MSE(weight=3),
    CCL(margin=0.1, weight=4),
    InfoNCE(temperature=0.6, weight=1.5),
    MINE(),
    MINEPlus(temperature=0.5, weight=1.2),
    MeanDifference(),
    RG2Loss(),
]
DEBIASED_LOSSES = [
    replace(loss, debiased=Debias(positives=4, prior=0.2)) for loss in BIASED_LOSSES if hasattr(loss, "debiased")
]
DEBIASED_LOSSES += [  # with weights below 1, as printed: larger ones of MSE have no minimum
    replace(loss, weight=0.6, debiased=replace(loss.debiased, weigh_positives=True))
    for loss in DEBIASED_LOSSES
    if isinstance(loss, MSE | CCL)
]
ALL_LOSSES = [*BIASED_LOSSES, *DEBIASED_LOSSES]
EVERYTHING_LOSSES = [
    replace(loss, sampler=Everything()) if hasattr(loss, "sampler") else loss for loss in ALL_LOSSES if not loss.is_pairwise
]
SMALL_LOSSES = [replace(loss, n_negatives=8) if hasattr(loss, "n_negatives") else loss for loss in ALL_LOSSES]
SMALL_EVERYTHING = [replace(loss, n_negatives=8) for loss in EVERYTHING_LOSSES if not loss.uses_all_items]


def loss_id(loss):
    is_everything = loss.batches_by_user and not loss.uses_all_items
    return (
        type(loss).__name__
        + (" debiased" if getattr(loss, "debiased", None) else "")
        + (" as printed" if getattr(loss, "debiased", None) and loss.debiased.weigh_positives else "")
        + (" everything" if is_everything else "")
    )


def recipe_for(loss, **params):
    """A small FactorModel with this loss, and with cosines if the loss needs them."""
    backbone = params.pop("backbone", MF(rank=6))
    cosine = bool(loss.needs_cosine or (isinstance(loss, InfoNCE) and loss.debiased))
    return FactorModel(replace(backbone, cosine=cosine), loss, **({"n_epochs": 3, "batch_size": 64} | params))


RECIPES = [
    *(recipe_for(loss) for loss in SMALL_LOSSES),
    recipe_for(BPR(n_negatives=8), backbone=LightGCN(rank=6, n_layers=2)),
    CDAE(rank=6, n_epochs=3, batch_size=16),
    MultDAE(rank=6, n_epochs=3, batch_size=16),
    MultVAE(rank=6, hidden=10, n_epochs=3, batch_size=16),
]


def recipe_id(recipe):
    return loss_id(recipe.loss) + type(recipe.backbone).__name__ if isinstance(recipe, FactorModel) else type(recipe).__name__


def fraction_in_group(model):
    """The fraction of recommended items in the user's group, the lower of trained and new users. By chance it is 1/3."""
    lists = model.recommend(GROUPS.users.tolist()[:30], k=2)
    trained = [item % 3 == user % 3 for user, items in zip(lists.users, lists.items, strict=True) for item in items]
    lists = model.recommend_for([[0, 3, 9, 12], [1, 4, 10, 13], [2, 5, 11]], k=3)
    new = [item % 3 == group for group, items in enumerate(lists.items) for item in items]
    return min(np.mean(trained), np.mean(new))


def small_backbones():
    """One of each backbone, with few factors."""
    return [
        MF(rank=6),
        LightGCN(rank=6, n_layers=2),
        SimpleX(rank=6, own_weight=0.3),
        YouTubeNet(rank=16, hidden=32),
        NGCF(rank=6, n_layers=2, dropout=0),
        SGL(rank=6, n_layers=2),
        PinSage(rank=16, n_neighbours=8, n_walks=50),
        GAT(rank=6),
        DGCF(rank=6, n_intents=3, n_layers=2, n_steps=3, independence=0),
    ]


def require_the_same_bits_after_a_stop(recipe, folder):
    """A training of four epochs is reproducible, depends on its seed, and can be stopped after two and resumed."""
    whole = recipe.fit(EVENTS)
    assert np.array_equal(whole.scores(EVENTS), recipe.fit(EVENTS).scores(EVENTS))
    assert not np.array_equal(whole.scores(EVENTS), replace(recipe, seed=1).fit(EVENTS).scores(EVENTS))
    for epoch in recipe.epochs(EVENTS, scratch=folder):
        if epoch.number == 2:
            break
    del epoch
    resumed = list(recipe.epochs(EVENTS, scratch=folder))
    assert [epoch.number for epoch in resumed] == [3, 4]
    assert np.array_equal(resumed[-1].model.scores(EVENTS), whole.scores(EVENTS))
