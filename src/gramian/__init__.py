"""Gramian: linear recommenders from implicit feedback. One Gram matrix, every model.

The public names are those of `__init__.pyi`. The module of a name is imported when the name is first used, so that the package
is imported at once, and a program loads only what it uses.
"""

import ast as _ast
from functools import cache as _cache
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from pathlib import Path as _Path
from types import ModuleType as _ModuleType
from typing import Any as _Any

__version__ = _version("gramian")


@_cache
def _homes() -> dict[str, tuple[str, str]]:
    """Return the module of each public name, and its name there; "*" is the module with all models."""
    stub = _ast.parse(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, _ast.ImportFrom)]
    homes = {alias.name: (str(node.module), alias.name) for node in imports for alias in node.names}
    return homes | {"load": homes.pop("load_model")}


def __getattr__(name: str) -> _Any:
    if name.startswith("_"):  # which tools ask for: nothing is imported to say no
        raise AttributeError(f"module 'gramian' has no attribute {name!r}")
    home, name_there = _homes().get(name, (_homes()["*"][0], name))
    module = _import_module(home)
    try:
        value = vars(module)[name_there] if name_there in vars(module) else _import_module(f"{home}.{name_there}")
    except ModuleNotFoundError as error:
        if error.name != f"{home}.{name_there}":
            raise
        raise AttributeError(f"module 'gramian' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    public = vars(_import_module(_homes()["*"][0])).items()
    models = {name for name, value in public if not name.startswith("_") and not isinstance(value, _ModuleType)}
    return sorted(set(globals()) | set(_homes()) - {"*"} | models)
