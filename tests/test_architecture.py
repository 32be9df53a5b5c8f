"""The rules of the house: layers, optional wings, names, docstrings and words."""

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import gramian as gr

SOURCE = Path(gr.__file__).parent
ROOT = Path(__file__).parents[1]

# Each layer may import those before it, and itself.
LAYERS = ["errors", "validation", "progress", "linalg", "data", "io", "core", "rerank", "models", "gradient", "evaluation"]
LAYERS += ["tuning", "spark", "experiments", "selection", "service", "cli", "__main__"]
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, by statement or by a string given to an import function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" if node.module == "gramian" else str(node.module) for alias in node.names}
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "_import_module", "__import__", "find_spec"):
                texts = [part.value for arg in node.args for part in ast.walk(arg) if isinstance(part, ast.Constant)]
                found |= {text.rstrip(".") for text in texts if isinstance(text, str)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_point_one_way(path):
    layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    used = {name.split(".")[1] for name in imports(path) if name.startswith("gramian.")}
    above = [other for other in used if LAYERS.index(other) > LAYERS.index(layer)]
    assert not above, f"{layer} must not import {above}"


def test_an_import_by_string_counts_as_an_import(tmp_path):
    file = tmp_path / "sly.py"
    file.write_text('from importlib import import_module\nimport_module("gramian.cli")\n__import__(f"gramian.{name}")\n')
    assert {"gramian.cli", "gramian"} <= imports(file)


def test_linear_algebra_knows_arrays_only():
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] == "linalg":
            assert not {n for n in imports(path) if n.split(".")[0] == "polars" or n.startswith("gramian.data")}, path


def test_importing_the_library_loads_no_optional_wing():
    wings = {
        "torch",
        "pyspark",
        "fastapi",
        "uvicorn",
        "matplotlib",
        "optuna",
        "pandas",
        "pyarrow",
        "typer",
        "sklearn",
        "jinja2",
        "duckdb",
        "sqlalchemy",
    }
    assert modules_loaded_by("import gramian; list(gramian.MODELS); gramian.read") & wings == set()


def modules_loaded_by(code):
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_the_library_loads_nothing_that_is_not_used():
    loaded = modules_loaded_by("import gramian")
    assert {name for name in loaded if name.startswith("gramian")} == {"gramian"}
    assert loaded & {"numpy", "scipy", "numba", "polars"} == set()
    assert "gramian.gradient" not in modules_loaded_by("import gramian; gramian.EASE; gramian.read; gramian.evaluate")


def test_importing_the_library_says_and_does_nothing():
    run = subprocess.run([sys.executable, "-W", "error", "-c", "import gramian"], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def top_level_names(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_no_top_level_name_is_defined_in_two_modules():
    places = defaultdict(list)
    for path in MODULES:
        for name in top_level_names(path):
            if not name.startswith("_") and len(name) > 1:  # a private helper and a type variable are local by nature
                places[name].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


PUBLIC = {
    "ADMMEDLAE", "ALSEDLAE", "AddEASE", "BSPM", "Blend", "CEASE", "Catalog", "ChebyCF", "Cholesky", "ConjugateGradient",
    "DAN", "DEQL", "DLAE", "DebiasedEASE", "DebiasedIALS", "DecoupledAutoencoder", "DropoutMF", "EASE", "EDLAE", "EpochPath",
    "Explanation", "FeatureIALS", "Features", "GFCF", "Gram", "HistoryChange", "IALS", "Influence", "Interactions", "ItemKNN",
    "L3AE",
    "LRR", "LowRankDLAE", "LowRankEDLAE", "LowRankRegression", "MODELS", "Metric", "MissingExplanation", "ModelComparison",
    "MultiBehaviorEASE", "NuclearNormMF", "Popularity", "PrintedUpdates", "Profile", "RDLAE", "RG2", "RG2ALS", "RG2NewtonCG",
    "RGX", "RP3beta", "RankPath", "Recommendations", "Recommender", "RegularizedPCA", "Report", "Retraining", "SGFCF", "SLIM",
    "SLIST", "SVDAE", "Search", "Selection", "SparseEDLAE",
    "Split", "SteckUpdates", "Subspace", "TALE", "TurboCF", "VLAE", "WLAE", "WRMF",
    "auto", "compare", "datasets", "describe", "epoch_path", "equivalent", "errors", "evaluate", "evaluate_by_popularity",
    "gradient", "leave_one_user_out", "load", "rank_path", "read", "register", "rerank", "retrain", "split", "tune",
}  # fmt: skip


def test_public_names_are_these():
    public = {name for name in dir(gr) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(gr, name), ModuleType)}
    assert public - (modules - PUBLIC) == PUBLIC
    assert gr.__version__
    with pytest.raises(AttributeError, match="no attribute 'Eaes'"):
        gr.Eaes  # noqa: B018


def public_objects():
    for space in (gr, gr.gradient, gr.datasets, gr.split):
        for name in dir(space):
            value = getattr(space, name)
            home = getattr(value, "__module__", "")
            is_ours = home.startswith("gramian") if space in (gr, gr.gradient) else home == space.__name__
            is_internal = name.startswith(("_", "mark_", "count_", "parse_")) or name == "register"
            if callable(value) and is_ours and not is_internal:
                yield f"{space.__name__}.{name}", value


@pytest.mark.parametrize(("name", "value"), list(public_objects()), ids=lambda v: v if isinstance(v, str) else "")
def test_public_names_have_a_docstring_that_names_their_parameters(name, value):
    doc = inspect.getdoc(value)
    assert doc, name
    assert doc.splitlines()[0].strip(), name
    if isinstance(value, type) and value.__init__ in (object.__init__, Exception.__init__):
        return
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            assert re.search(rf"\b{parameter.name}\b", doc), f"{name}: {parameter.name}"


def public_methods():
    for cls in (
        gr.Interactions,
        gr.Catalog,
        gr.Features,
        gr.Gram,
        gr.Recommender,
        gr.Recommendations,
        gr.Explanation,
        gr.Report,
        gr.Split,
    ):
        for name, member in inspect.getmembers(cls):
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield f"{cls.__name__}.{name}", member


@pytest.mark.parametrize(("name", "member"), list(public_methods()), ids=lambda v: v if isinstance(v, str) else "")
def test_public_methods_have_a_docstring(name, member):
    assert inspect.getdoc(member), name


def test_words():
    """What we do not write: private notation, numbered papers, sentences that say the opposite of what is meant."""
    texts = [*MODULES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for path in texts:
        text = path.read_text()
        assert not re.search(r"\bdMat\b|\bpaper 00\d|nobody must be", text), path


def test_every_error_says_expected_got_do():
    for name in ("InvalidInput", "UnknownId", "NotRegistered", "NotSupported", "MissingFile", "DamagedFile", "NotEnoughMemory"):
        error = getattr(gr.errors, name)("a cat", "a dog", "Call it")
        assert isinstance(error, gr.errors.GramianError)
        assert str(error) == "expected a cat; got a dog. Call it."


def test_no_pickle_and_no_prints_in_the_library():
    for path in MODULES:
        names = imports(path)
        assert not names & {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"}, path
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        prints = [c for c in calls if isinstance(c, ast.Name) and c.id == "print"]
        assert path.parent.name == "cli" or not prints, path


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
