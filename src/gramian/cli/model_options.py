"""Models on the command line: specs such as "edlae(dropout=0.3, l2=200)", and a flag for each parameter of any model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field
from typing import Annotated, Any

import typer

from gramian.cli.options import expand_argument, format_flag, keyword_option, parse_number
from gramian.core.params import Configurable, format_value, parse_spec
from gramian.core.recipe import Recipe
from gramian.core.registry import MODELS
from gramian.errors import InvalidInput


def complete_model(incomplete: str) -> list[str]:
    """Return the names of models that begin like this, for the shell."""
    return [name.lower() for name in MODELS if name.lower().startswith(incomplete.lower())]


SPEC_HELP = 'edlae or "edlae(dropout=0.3, l2=200)"; `gramian models` lists them all'
ModelSpec = Annotated[str, typer.Option("--model", help=f"A model, such as {SPEC_HELP}.", autocompletion=complete_model)]
ModelSpecs = Annotated[
    list[str] | None,
    typer.Option("--model", help=f"A model, such as {SPEC_HELP}. Repeat for more.", autocompletion=complete_model),
]
PARAMETER_PANEL, SWITCH_PANEL = "Parameters of the model", "Switches of the model"


def parse_model(spec: str) -> tuple[type[Recipe], dict[str, Any]]:
    """Return the class and the parameters in a spec such as "edlae(l2=200)"."""
    parsed = parse_spec(spec)
    model, params = MODELS.find(parsed["name"]), parsed["params"]
    names = param_names(model)
    unknown = [name for name in params if name not in names]
    if unknown:
        expected = f"parameters of {model.__name__} ({', '.join(names) or 'none'})"
        raise InvalidInput(expected, f"{unknown[0]!r} in {spec}", f"See `gramian models {model.__name__.lower()}`")
    return model, params


def param_names(model: type[Recipe]) -> list[str]:
    """Return the names of a model's parameters."""
    return [field.name for field in model.param_fields()]


def parse_recipes(specs: list[str], flags: dict[str, Any]) -> list[Recipe]:
    """Return one recipe for each spec. A flag goes to the one model that has this parameter; anything else is an error."""
    models = [parse_model(spec) for spec in specs]
    for name, value in flags.items():
        owners = [(model, params) for model, params in models if name in param_names(model)]
        if not owners:
            known = sorted({format_flag(param) for model, _ in models for param in param_names(model)})
            expected = f"parameters of {', '.join(model.__name__ for model, _ in models)} ({', '.join(known) or 'none'})"
            raise InvalidInput(expected, format_flag(name), "Leave it out")
        model, params = owners[0]
        if len(owners) > 1:
            several = " and ".join(model.__name__ for model, _ in owners)
            do = f'Write it into each model, as in --model "{model.__name__.lower()}({name}={format_value(value)})"'
            raise InvalidInput(f"{format_flag(name)} with one model that has it", several, do)
        if name in params:
            got = f"{name}={format_value(params[name])} and {format_flag(name)} {format_value(value)}"
            raise InvalidInput(f"one value for {name} of {model.__name__}", got, "Leave one of them out")
        params[name] = value
    return [model(**params) for model, params in models]


def add_parameter_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a flag for each parameter of any registered model; it receives the ones that were passed as `flags`.

    An option of the command, such as the seed of a split, takes precedence over a parameter of the same name, and a parameter
    that has several types has no flag: both can be written into the spec.
    """
    declared: dict[str, dict[str, Field[Any]]] = {}
    for model_name, model in MODELS.items():
        for field in model.param_fields():
            declared.setdefault(field.name, {})[model_name] = field
    existing_options = option_names(command)
    options = []
    for name, fields in declared.items():
        value_type = flag_type(fields)
        if value_type is not None and format_flag(name) not in existing_options:
            panel = SWITCH_PANEL if value_type is bool else PARAMETER_PANEL
            option = typer.Option(help=describe_flag(fields), show_default=False, rich_help_panel=panel)
            options.append(keyword_option(name, Annotated[value_type | None, option]))
    return expand_argument(
        command, "flags", options, lambda values: {name: value for name, value in values.items() if value is not None}
    )


def option_names(command: Callable[..., None]) -> set[str]:
    """Return the options that a command has already, as they are typed."""
    names = set()
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        infos = getattr(parameter.annotation, "__metadata__", ())
        declared = {name for info in infos for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)}
        names |= declared or {format_flag(parameter.name)}  # `typer.Option("--out")` stores its name as `default`
    return names


def flag_type(fields: dict[str, Field[Any]]) -> type | None:
    """Return the type of a flag for these parameters of one name; None where their types differ."""
    examples = [field.metadata["like"] for field in fields.values()]
    value_types = {str if isinstance(example, Configurable) else type(example) for example in examples}
    if value_types == {int, float}:
        return float
    return value_types.pop() if len(value_types) == 1 else None


def describe_flag(fields: dict[str, Field[Any]]) -> str:
    """Describe the parameters of one name: models for which text and default are the same share an entry."""
    models: dict[str, list[str]] = {}
    for model_name, field in fields.items():
        about = field.metadata["about"]
        models.setdefault(f"{about[:1].upper()}{about[1:]}. Default {format_value(field.default)}", []).append(model_name)
    entries = [f"{text}: {', '.join(names)}." for text, names in models.items()]
    return entries[0] if len(entries) == 1 else "\n".join(f"- {entry}" for entry in entries)


def parse_space(model: type[Recipe], text: str) -> tuple[str, Any]:
    """Return a parameter and what to try of it: a list from l2=10,100, a range from l2=1:1000."""
    name, equals, values = text.partition("=")
    if not (equals and name and values):
        raise InvalidInput("--space parameter=values", text, "Pass l2=10,100,1000 or l2=1:1000, say")
    name = name.replace("-", "_")
    example = next((field.metadata["like"] for field in model.param_fields() if field.name == name), None)
    if isinstance(example, bool):
        return name, [{"true": True, "false": False}.get(value.lower(), value) for value in values.split(",")]
    if isinstance(example, str | Configurable):
        return name, split_specs(values)
    low, colon, high = values.partition(":")
    return name, (parse_number(low), parse_number(high)) if colon else [parse_number(value) for value in values.split(",")]


def split_specs(text: str) -> list[str]:
    """Split a list of specs at its commas and semicolons, except those within parentheses."""
    specs, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character in ",;" and depth == 0:
            specs.append("")
        else:
            specs[-1] += character
    return [spec.strip() for spec in specs]


def format_recipe(recipe: Recipe) -> str:
    """Return a spec that gives this recipe, with all parameters except switches and parts that have their default."""
    shown = []
    for field in recipe.param_fields():
        value = getattr(recipe, field.name)
        if not (isinstance(field.default, bool | Configurable | None) and value == field.default):
            text = format_value(value)
            is_rounded = isinstance(value, float) and float(text) != value
            shown.append(f"{field.name}={value!r}" if is_rounded else f"{field.name}={text}")
    return f"{type(recipe).__name__}({', '.join(shown)})"
