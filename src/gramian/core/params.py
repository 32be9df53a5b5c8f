"""Parameters, declared once: constructor, checks, `help()`, command line, JSON and search all read the declaration.

A class of parameters is a frozen dataclass made by `@configurable`, whose fields are `param(...)`. Recipes, solvers, losses,
backbones and samplers are such classes, and a parameter may itself be one of them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from math import inf, isclose
from textwrap import indent, wrap
from typing import Any, Self, TypeVar, dataclass_transform

import numpy as np

from gramian.core.registry import Registry
from gramian.errors import InvalidInput
from gramian.validation import is_number

C = TypeVar("C", bound="Configurable")
MAX_SHOWN_VALUES = 8  # of a parameter with a list of values
MAX_TEXT_LENGTH = 200  # characters of a parameter that is any text, such as a tag
MAX_SPEC_LENGTH = 1000  # characters; the text of a spec is cut off here before it is parsed


def param(
    default: Any,
    about: str,
    *,
    at_least: float = -inf,
    below: float = inf,
    at_most: float = inf,
    choices: tuple[Any, ...] | Mapping[str, Any] = (),
    one_per: str = "",
    tries: tuple[Any, ...] = (),
    free: bool = False,
    like: Any = None,
) -> Any:
    """Declare a parameter as a dataclass field.

    Parameters
    ----------
    default
        The default. A value must be of the same type: a number, a whole number, a boolean, one of `choices`, a text if there
        are no `choices`, or an instance of one of the configurable classes in `choices`, which may be a registry.
    about
        What the parameter does, in a phrase for `help()` and the command line.
    at_least, below, at_most
        The range of a number.
    one_per
        What a list may have one number for each of, such as "factor"; only a single number is accepted if left out.
    tries
        The values that a search tries, from low to high; the default alone if left out.
    free
        Whether recipes that differ only in this parameter are fitted together at the cost of one.
    like
        A value of the parameter's type where the default is None.
    """
    constraint = {"about": about, "at_least": at_least, "below": below, "at_most": at_most}
    constraint |= {"choices": choices, "one_per": one_per}
    example = default if like is None else like
    return field(default=default, metadata=constraint | {"tries": tries or (default,), "free": free, "like": example})


def coerce(value: Any, field_: Field[Any]) -> Any:
    """Return the value coerced to the parameter's type, or None if it is invalid."""
    return _coerce(value, field_.metadata["like"], field_.metadata)


def _coerce(value: Any, example: Any, limits: Mapping[str, Any]) -> Any:
    if isinstance(example, bool):
        return value if isinstance(value, bool) else None
    if isinstance(example, str) and not limits["choices"]:
        return value if isinstance(value, str) and 0 < len(value) <= MAX_TEXT_LENGTH else None
    if isinstance(example, str):
        return value if value in limits["choices"] else None
    if isinstance(example, Configurable):
        return parse_configurable(value, choice_classes(limits["choices"]))
    if limits["one_per"] and isinstance(value, list | tuple | np.ndarray):
        values = tuple(_coerce(v, example, {**limits, "one_per": ""}) for v in value)
        return values if values and None not in values else None
    if not (is_number(value) and limits["at_least"] <= value < limits["below"] and value <= limits["at_most"]):
        return None
    if isinstance(example, int):
        return int(value) if value == int(value) else None
    return float(value)


def choice_classes(choices: tuple[Any, ...] | Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the classes that a parameter accepts, from a tuple or a registry."""
    return tuple(choices.values()) if isinstance(choices, Mapping) else choices


def describe_constraint(field_: Field[Any]) -> str:
    """Describe the values that a parameter accepts, as in 'a number of at least 0 and below 1'."""
    limits, example = field_.metadata, field_.metadata["like"]
    none = ", or None" if field_.default is None else ""
    if isinstance(example, bool):
        return "True or False" + none
    if isinstance(example, str) and not limits["choices"]:
        return f"a text of 1 to {MAX_TEXT_LENGTH} characters" + none
    if isinstance(example, str):
        return " or ".join(map(repr, limits["choices"])) + none
    if isinstance(example, Configurable):
        choices = limits["choices"]
        names = choices.describe() if isinstance(choices, Registry) else " or ".join(f"{cls.__name__}()" for cls in choices)
        return names + none
    number = "a whole number" if isinstance(example, int) else "a number"
    low = f" of at least {limits['at_least']:g}" if limits["at_least"] > -inf else ""
    high = f" below {limits['below']:g}" if limits["below"] < inf else ""
    high = f" at most {limits['at_most']:g}" if limits["at_most"] < inf else high
    high = f" and{high}" if low and high else high
    many = f", or a list with one for each {limits['one_per']}" if limits["one_per"] else ""
    return f"{number}{low}{high}{many}{none}"


def format_value(value: Any) -> str:
    """Format a parameter's value for messages and tables."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_value, value))})"
    return format(value, "g") if isinstance(value, float) else str(value)


@dataclass_transform(frozen_default=True)
def configurable(cls: type[C]) -> type[C]:
    """Make a class with `param(...)` fields a frozen dataclass, and add its parameters to its docstring."""
    cls = dataclass(frozen=True)(cls)
    if not inspect.isabstract(cls):
        cls.__doc__ = document(cls)
    return cls


def document(cls: type[Configurable]) -> str:
    """Return the docstring of a configurable class with a NumPy-style section of its parameters."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\n\nParameters\n----------")[0]
    lines = []
    for f in cls.param_fields():
        about, constraint = (text[:1].upper() + text[1:] for text in (f.metadata["about"], describe_constraint(f)))
        lines += [f"{f.name} : {type_name(f)}, default {format_value(f.default)}"]
        lines += [indent("\n".join(wrap(f"{about}. {constraint}.", 110)), "    ")]
    return "\n".join([text, "", "Parameters", "----------", *lines, ""]) if lines else text


def type_name(field_: Field[Any]) -> str:
    """Return the name of a parameter's type; of a nested class, its abstract base such as Loss or Solver."""
    cls = type(field_.metadata["like"])
    return next((base.__name__ for base in cls.__mro__ if Configurable in base.__bases__), cls.__name__)


class Configurable:
    """Named parameters, checked on creation."""

    def __post_init__(self) -> None:
        for f in self.param_fields():
            argument = getattr(self, f.name)
            if argument is None and f.default is None:
                continue
            value = coerce(argument, f)
            if value is None:
                expected = f"{f.name} of {type(self).__name__} to be {describe_constraint(f)}"
                raise InvalidInput(expected, repr(argument), f"The default is {format_value(f.default)}")
            object.__setattr__(self, f.name, value)

    @classmethod
    def param_fields(cls) -> tuple[Field[Any], ...]:
        """Return the declarations of the parameters."""
        return fields(cls)  # type: ignore[arg-type]

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {f.name: getattr(self, f.name) for f in self.param_fields()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn does.

        Parameters
        ----------
        deep
            Whether to add those of nested classes, as in `loss__margin`.
        """
        nested = {name: value.get_params() for name, value in self.params.items() if isinstance(value, Configurable) and deep}
        return self.params | {f"{name}__{inner}": v for name, params in nested.items() for inner, v in params.items()}

    def set_params(self, **params: Any) -> Self:
        """Return a copy with other values. This object is frozen and stays as it is, unlike an estimator of scikit-learn.

        Parameters
        ----------
        params
            Values by name; those of a nested class as in `loss__margin`.
        """
        changed = replace(self, **{name: value for name, value in params.items() if name in self.params})  # type: ignore[type-var]
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            nested = changed.params.get(outer)
            if inner and isinstance(nested, Configurable):
                changed = replace(changed, **{outer: nested.set_params(**{inner: value})})  # type: ignore[type-var]
            elif name not in self.params:
                names = ", ".join(self.get_params()) or "none"
                raise InvalidInput(f"parameters of {type(self).__name__} ({names})", name, "Leave it out")
        return changed

    def __sklearn_clone__(self) -> Self:
        """The object itself: it is frozen, so that `sklearn.base.clone` need not copy it."""
        return self

    @property
    def summary(self) -> str:
        """All parameters as in 'dropout=0.3, l2=200', without booleans and nested classes that have their default."""
        return ", ".join(
            f"{f.name}={format_value(getattr(self, f.name))}"
            for f in self.param_fields()
            if not (isinstance(f.default, bool | Configurable | None) and getattr(self, f.name) == f.default)
        )

    def __str__(self) -> str:
        """The spec: the class and every parameter that differs from its default, as in 'EDLAE(l2=500)'."""
        changed = (f for f in self.param_fields() if getattr(self, f.name) != f.default)
        return f"{type(self).__name__}({', '.join(f'{f.name}={format_value(getattr(self, f.name))}' for f in changed)})"

    def to_json(self) -> dict[str, Any]:
        """Return the class name and the parameters as JSON."""
        params = {name: value.to_json() if isinstance(value, Configurable) else value for name, value in self.params.items()}
        return {"name": type(self).__name__, "params": params}


def params_of_json(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters in what `to_json` wrote. Version 0.1 called them settings."""
    params: Mapping[str, Any] = data["params"] if "params" in data else data.get("settings", {})
    return params


def parse_configurable(value: Any, classes: tuple[type[Configurable], ...]) -> Configurable | None:
    """Return an instance of one of the classes from an instance, its JSON or its spec; None if it is none of these."""
    if isinstance(value, classes):
        return value
    if isinstance(value, str):
        try:
            value = parse_spec(value)
        except InvalidInput:
            return None
    by_name = {cls.__name__.lower(): cls for cls in classes}
    if not (isinstance(value, Mapping) and str(value.get("name")).lower() in by_name):
        return None
    cls, params = by_name[str(value["name"]).lower()], params_of_json(value)
    is_known = isinstance(params, Mapping) and set(params) <= {f.name for f in cls.param_fields()}
    return cls(**params) if is_known else None


def parse_spec(text: str) -> dict[str, Any]:
    """Parse a spec such as 'CCL(margin=0.9, debiased=Debias(positives=10))' into JSON. Nothing is called."""
    try:
        parsed = _parse_node(ast.parse(text.strip(), mode="eval").body) if len(text) <= MAX_SPEC_LENGTH else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parsed = None
    if isinstance(parsed, str):  # a name alone
        parsed = {"name": parsed, "params": {}}
    if not isinstance(parsed, dict) or "name" not in parsed:
        raise InvalidInput("a name with parameters", repr(text), "Write it as in edlae(dropout=0.3, l2=200)")
    return parsed


def _parse_node(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return {"true": True, "false": False, "none": None}.get(node.id.lower(), node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return {"name": node.func.id, "params": {str(word.arg): _parse_node(word.value) for word in node.keywords}}
    return ast.literal_eval(node)


def format_spec(data: Mapping[str, Any]) -> str:
    """Format what `to_json` or `parse_spec` returned as a spec."""
    return f"{data['name']}({', '.join(format_json_params(data))})"


def format_json_params(data: Mapping[str, Any]) -> Iterator[str]:
    """Format the parameters in what `to_json` returned, each as in 'l2=200'; long lists are abridged."""
    for name, value in params_of_json(data).items():
        if isinstance(value, list | tuple) and len(value) > MAX_SHOWN_VALUES:
            yield f"{name}=({len(value)} numbers from {min(value):.3g} to {max(value):.3g})"
        else:
            yield f"{name}={format_spec(value) if isinstance(value, Mapping) else format_value(value)}"


def params_equal(x: Any, y: Any) -> bool:
    """Whether two values of a parameter are equal up to rounding."""
    return isclose(x, y, rel_tol=1e-12) if isinstance(x, float) and isinstance(y, float) else bool(x == y)
