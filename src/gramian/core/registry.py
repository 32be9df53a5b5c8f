"""The registry: models, scorers, losses, metrics and re-rankers by name, open to classes from outside the package.

One line registers a class, `gramian.register(MyModel)`; it can then be saved, loaded, tuned, served and listed on the
command line. Modules that register something are found by the entry-point group `gramian.plugins`, or are named in the
environment variable GRAMIAN_PLUGINS (module names or paths of .py files, separated by commas). Loading a model never imports
by a name found in a file: only what is registered counts.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from gramian.errors import InvalidInput, MissingFile, NotRegistered

PLUGIN_GROUP, PLUGIN_VARIABLE = "gramian.plugins", "GRAMIAN_PLUGINS"
# Imported when a name is asked for that is not registered yet, as plugins are: no layer imports those above it.
OWN_MODULES = ("gramian.models", "gramian.gradient", "gramian.evaluation.metrics", "gramian.rerank")
E = TypeVar("E")
R = TypeVar("R")


class Registry(Mapping[str, E]):
    """The registered entries of one kind, by name. `find` ignores case and loads plugins for a name it does not know.

    The modules of this package that register something are imported when they are first needed.
    """

    def __init__(self, kind: str, example: str | None = None) -> None:
        self.kind, self.example = kind, example
        self._entries: dict[str, E] = {}

    def __getitem__(self, name: str) -> E:
        if name not in self._entries:
            load_own_modules()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        load_own_modules()
        return iter(self._entries)

    def __len__(self) -> int:
        load_own_modules()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"

    def describe(self) -> str:
        """Describe a parameter whose value is one of the entries: list all of them, or name the example."""
        return f"any {self.kind}, such as {self.example}" if self.example else " or ".join(f"{name}()" for name in self)

    def add(self, name: str, entry: E) -> None:
        """Register an entry. Only a newer definition of the same class, as in a notebook, may reuse a name."""
        existing = self._entries.get(name)
        if existing is not None and _origin(existing) != _origin(entry):
            raise InvalidInput(f"a new name for a {self.kind}", f"{name!r}, which is {_origin(existing)}", "Rename the class")
        self._entries[name] = entry

    def find(self, name: str) -> E:
        """Return an entry by its name in any case, or raise `NotRegistered`."""
        for load in (load_own_modules, load_plugins):
            if name.lower() not in map(str.lower, self._entries):
                load()
        by_name = {known.lower(): entry for known, entry in self._entries.items()}
        if name.lower() not in by_name:
            close = ", ".join(difflib.get_close_matches(name.lower(), by_name, n=3, cutoff=0.5))
            raise NotRegistered(
                f"a {self.kind} among {', '.join(by_name)}",
                f"{name!r}, which is not registered",
                f"{f'Close: {close}' if close else 'Choose one of them'}, or import the module that calls gramian.register "
                f"for it (or name that module in {PLUGIN_VARIABLE})",
            )
        return by_name[name.lower()]


MODELS: Registry[Any] = Registry("model", example="EASE()")
SCORERS: Registry[Any] = Registry("scorer")
LOSSES: Registry[Any] = Registry("loss")
METRICS: Registry[Any] = Registry("metric")
RERANKERS: Registry[Any] = Registry("re-ranker")


def register(entry: R) -> R:
    """Register a model, scorer, loss or re-ranker class, or a metric. Returns it, so that it can be used as a decorator.

    Parameters
    ----------
    entry
        A subclass of `Recipe`, `Scorer`, `Loss` or `Reranker`, or a `Metric`. It is found under its `name`, or else under its
        class name.
    """
    registry = getattr(entry, "registry", None)
    if not isinstance(registry, Registry):
        raise InvalidInput("a model, scorer, loss or re-ranker class, or a metric", repr(entry), "Subclass one of them")
    if not _origin(entry).startswith("gramian."):
        load_own_modules()  # so that the names of this package are taken
    registry.add(getattr(entry, "name", None) or entry.__name__, entry)  # type: ignore[attr-defined]
    return entry


@cache
def load_own_modules() -> None:
    """Import the modules of this package that register something, once."""
    for name in OWN_MODULES:
        importlib.import_module(name)


@cache
def load_plugins() -> None:
    """Import the modules that register something from outside the package, once."""
    for point in entry_points(group=PLUGIN_GROUP):
        point.load()
    for name in filter(None, os.environ.get(PLUGIN_VARIABLE, "").split(",")):
        _import_plugin(name.strip())


def _import_plugin(name: str) -> None:
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    if not Path(name).is_file():
        raise MissingFile(f"a plugin at {name}", "no such file", f"Correct {PLUGIN_VARIABLE}")
    module_name = f"gramian_plugin_{Path(name).stem}"
    spec = importlib.util.spec_from_file_location(module_name, name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)


def _origin(entry: Any) -> str:
    cls = entry if isinstance(entry, type) else type(entry)
    return f"{cls.__module__}.{cls.__qualname__}"
