"""skrecsys' `recommend` behind FastAPI and Uvicorn, with our weights to spare the fit; living.py sends it requests."""

import argparse
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from skrecsys.recommendation import EASE


class RecommendRequest(BaseModel):
    """The request of the service that it is compared with."""

    user: int
    k: int = 10


def load_model(data: Path) -> EASE:
    """Return its model with our weights, mapped, in the types that it reads without a copy."""
    model = EASE(n_jobs=1)  # as our service scores single requests
    weights = np.load(data / "weights.npy", mmap_mode="r")
    indptr, indices = np.load(data / "indptr.npy"), np.load(data / "indices.npy")
    model.n_users_, model.n_items_ = len(indptr) - 1, len(weights)
    model.user_ids_, model.item_ids_ = np.arange(model.n_users_), np.arange(model.n_items_)
    model.interactions_ = sp.csr_array((np.ones(len(indices)), indices, indptr), (model.n_users_, model.n_items_))
    model.similarity_, model.index_ = weights, None  # no approximate index
    return model


def create_app() -> FastAPI:
    """Return the application of one process."""
    model, app = load_model(Path(read_arguments().data)), FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/recommend")
    def recommend(request: RecommendRequest) -> dict[str, object]:
        items, scores = model.recommend([request.user], n_recommendations=request.k)
        rows = zip(items[0].tolist(), scores[0].tolist(), strict=True)
        return {"items": [{"item": item, "score": score} for item, score in rows]}

    return app


def read_arguments() -> argparse.Namespace:
    """Return the folder of the arrays, how many processes serve them, and the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("workers", type=int)
    parser.add_argument("--port", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = read_arguments()
    options = {"port": arguments.port, "workers": arguments.workers, "access_log": False, "log_level": "warning"}
    uvicorn.run("serve_skrecsys:create_app", factory=True, app_dir=str(Path(__file__).parent), **options)
