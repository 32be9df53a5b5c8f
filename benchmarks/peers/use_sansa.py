import logging
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sansa import SANSA, CHOLMODGramianFactorizerConfig, SANSAConfig, UMRUnitLowerTriangleInverterConfig
from worker import L2, SCORED, Job, K, main, matrix

WEIGHTS, BLOCK = 100, 1_000  # weights kept for an item in each of its two factors, users at a time

logging.disable()  # it reports every step


def fitted(train: sp.csr_matrix) -> SANSA:
    """With the factorization that it recommends for small and dense Gram matrices."""
    density = min(1.0, WEIGHTS / train.shape[1])
    how = CHOLMODGramianFactorizerConfig(), UMRUnitLowerTriangleInverterConfig()
    return SANSA(SANSAConfig(L2, density, *how)).fit(train)


def recommend(model: SANSA, histories: sp.csr_matrix) -> np.ndarray:
    """In blocks, for it makes the scores of all users it is given."""
    blocks = (histories[start : start + BLOCK] for start in range(0, histories.shape[0], BLOCK))
    return np.concatenate([model.recommend(block, k=K, mask_input=True)[0] for block in blocks])


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    return lambda: fitted(train), lambda model: recommend(model, train[:SCORED])


def top_k(data: Path) -> Job:
    model, sample = fitted(matrix(data, "train")), matrix(data, "sample")
    return lambda: recommend(model, sample), lambda lists: lists


main({"EASE fit, approximate": fit, "top 20, approximate": top_k})
