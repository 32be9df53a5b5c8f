from pathlib import Path

import numpy as np
from cornac.data import Dataset
from cornac.models import EASE
from worker import L2, SCORED, Job, main, matrix, rows


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    ids = [{place: place for place in range(size)} for size in train.shape]
    ready = Dataset(
        *train.shape, *ids, (rows(train), train.indices, train.data.astype(np.float64))
    )  # doubles, as it reads them
    assert ready.matrix.nnz == train.nnz  # made here, before the fit
    return lambda: EASE(lamb=L2, posB=False, verbose=False).fit(ready), lambda model: train[:SCORED] @ model.B


main({"EASE fit": fit})
