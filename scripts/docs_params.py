"""Griffe extension for the API reference: parameters that `@configurable` adds to a class when Python runs.

The docstring and the signature of such a class are made from its `param(...)` declarations, which static analysis does not see.
"""

import importlib
import inspect
from typing import Any

import griffe

from gramian.core.params import Configurable, format_value


class ConfigurableParameters(griffe.Extension):
    """Takes docstring and signature of configurable classes from the imported class."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if not any("configurable" in str(decorator.value) for decorator in cls.decorators):
            return
        imported = getattr(importlib.import_module(cls.module.path), cls.name)
        if not issubclass(imported, Configurable) or inspect.isabstract(imported):
            return
        cls.docstring = griffe.Docstring(imported.__doc__ or "", parent=cls)
        keyword = griffe.ParameterKind.positional_or_keyword
        parameters = [griffe.Parameter("self", kind=keyword)]
        for field in imported.param_fields():
            parameters.append(griffe.Parameter(field.name, kind=keyword, default=format_value(field.default)))
            cls.members.pop(field.name, None)  # shown as a parameter
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))
