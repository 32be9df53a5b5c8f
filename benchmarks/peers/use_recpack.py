from pathlib import Path

from recpack.algorithms import EASE
from worker import L2, SCORED, Job, main, matrix


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    return lambda: EASE(l2=L2).fit(train), lambda model: (train[:SCORED] @ model.similarity_matrix_).toarray()


main({"EASE fit": fit})
