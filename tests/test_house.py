"""The house rules: arrows point one way, optional wings stay outside, names are a promise."""

import ast
import inspect
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import gramian as gr

SOURCE = Path(gr.__file__).parent

# Each layer may import those before it, and itself.
LAYERS = ["errors", "progress", "store", "journal", "data", "linalg", "recommender", "models", "evaluation", "tuning"]
LAYERS += ["sampled", "spark", "app"]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" if node.module == "gramian" else str(node.module) for alias in node.names}
    return found


MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_point_one_way(path):
    layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    used = {name.split(".")[1] for name in imports(path) if name.startswith("gramian.")}
    above = [other for other in used if LAYERS.index(other) > LAYERS.index(layer)]
    assert not above, f"{layer} must not know {above}"


def test_importing_the_library_loads_no_optional_wing():
    wings = {"torch", "pyspark", "fastapi", "uvicorn", "matplotlib", "optuna", "pandas", "pyarrow", "typer", "sklearn"}
    code = f"import sys, gramian; print(*sorted({wings!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_importing_the_library_says_and_does_nothing():
    run = subprocess.run([sys.executable, "-W", "error", "-c", "import gramian"], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


PUBLIC = {
    "ADMMEDLAE", "Cholesky", "ConjugateGradient", "DEQL", "DLAE", "DebiasedEASE", "DebiasedIALS", "DropoutMF", "EASE",
    "EDLAE", "EpochPath", "Explanation", "Gram", "IALS", "Interactions", "LRR", "LowRankDLAE", "LowRankEDLAE", "MODELS",
    "NuclearNormMF", "Popularity", "RG2", "RG2ALS", "RG2NewtonCG", "RGX", "RankPath", "Recommendations", "Recommender",
    "RegularizedPCA", "Report", "SLIM", "Search", "Split", "Subspace", "VLAE", "WLAE", "WRMF", "datasets", "epoch_path",
    "equivalent", "errors", "evaluate", "leave_one_user_out", "load", "rank_path", "read", "split", "tune",
}  # fmt: skip


def test_public_names_are_these():
    submodules = {p.stem for p in SOURCE.iterdir()}
    public = {name for name in vars(gr) if not name.startswith("_")}
    assert public - (submodules - PUBLIC) - {"version"} == PUBLIC
    assert gr.__version__


@pytest.mark.parametrize(
    ("recipe", "signature"),
    [
        (gr.Popularity, []),
        (gr.EASE, ["l2"]),
        (gr.DLAE, ["dropout", "l2"]),
        (gr.EDLAE, ["dropout", "l2"]),
        (gr.DEQL, ["dropout", "kept_weight", "l2", "zero_diagonal"]),
        (gr.DebiasedEASE, ["alpha", "l2"]),
        (gr.LRR, ["rank", "l2"]),
        (gr.LowRankDLAE, ["rank", "dropout", "l2"]),
        (gr.LowRankEDLAE, ["rank", "dropout", "l2", "truncate"]),
        (gr.ADMMEDLAE, ["rank", "dropout", "l2", "omega", "n_epochs"]),
        (gr.RegularizedPCA, ["rank", "l2"]),
        (gr.DropoutMF, ["keep"]),
        (gr.WLAE, ["rank", "l2"]),
        (gr.VLAE, ["rank", "scale"]),
        (gr.NuclearNormMF, ["l2", "power"]),
        (gr.SLIM, ["l1", "l2", "non_negative"]),
        (gr.IALS, ["rank", "unobserved_weight", "l2", "l2_exponent", "n_epochs", "solver", "seed"]),
        (gr.WRMF, ["rank", "positive_weight", "l2", "n_epochs", "solver", "seed"]),
        (
            gr.DebiasedIALS,
            ["rank", "unobserved_weight", "l2", "l2_exponent", "n_epochs", "solver", "seed", "hidden_share", "hidden_items"],
        ),
        (gr.RG2, ["rank", "l2"]),
        (gr.RG2ALS, ["rank", "l2", "negative_weight", "n_epochs", "solver", "seed"]),
        (gr.RGX, ["rank", "l2", "negative_weight", "interaction", "n_epochs", "form", "solver", "seed"]),
        (gr.RG2NewtonCG, ["rank", "l2", "n_epochs", "steps", "seed"]),
    ],
)
def test_recipes_take_what_the_contract_says(recipe, signature):
    assert list(inspect.signature(recipe).parameters) == signature
    assert gr.MODELS[recipe.__name__] is recipe
    assert recipe(**recipe().to_json()["settings"]) == recipe()
    assert all(f.metadata["about"] for f in fields(recipe))
    with pytest.raises((FrozenInstanceError, TypeError)):
        recipe().l2 = 3


def test_every_error_says_expected_got_do():
    for name in ("InvalidInput", "UnknownId", "NotSupported", "MissingFile", "DamagedFile", "NotEnoughMemory", "Inaccurate"):
        error = getattr(gr.errors, name)("a cat", "a dog", "Call it")
        assert isinstance(error, gr.errors.GramianError)
        assert str(error) == "expected a cat; got a dog. Call it."


def test_no_pickle_and_no_prints_in_the_library():
    for path in MODULES:
        names = imports(path)
        assert not names & {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"}, path
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        prints = [c for c in calls if isinstance(c, ast.Name) and c.id == "print"]
        assert "app" in path.parts or not prints, path


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
