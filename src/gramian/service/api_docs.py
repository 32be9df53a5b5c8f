"""The API description at /docs: the OpenAPI document as a page that needs neither a network nor scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

Schema = Mapping[str, Any]
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).with_name("templates")), autoescape=True)
TYPE_NAMES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def render_api_docs(openapi: Schema) -> str:
    """Return the HTML page of an OpenAPI document."""
    components = openapi.get("components", {}).get("schemas", {})
    operations = [
        describe_operation(f"{method.upper()} {path}", operation, components)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    return TEMPLATES.get_template("api_docs.html").render(info=openapi["info"], operations=operations)


def describe_bodies(openapi: dict[str, Any], bodies: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Add the schemas of POST bodies to an OpenAPI document.

    FastAPI does this for bodies that it parses. It would parse them in the event loop, where a large one delays all requests.

    Parameters
    ----------
    openapi
        The document, which is changed.
    bodies
        The model of the body for each path.
    """
    template = "#/components/schemas/{model}"
    schemas, definitions = models_json_schema([(body, "validation") for body in bodies.values()], ref_template=template)
    openapi["components"]["schemas"] |= definitions["$defs"]
    for path, body in bodies.items():
        content = {"application/json": {"schema": schemas[body, "validation"]}}
        openapi["paths"][path]["post"]["requestBody"] = {"content": content, "required": True}
    return openapi


def describe_operation(name: str, operation: Schema, components: Schema) -> dict[str, Any]:
    """Return what the page shows of an operation: its fields, and an example of its response."""
    fields = [
        describe_field(parameter["name"], parameter["schema"], parameter.get("required", False), parameter.get("description"))
        for parameter in operation.get("parameters", ())
    ]
    body = resolve(json_schema(operation.get("requestBody", {})), components)
    fields += [
        describe_field(field, schema, field in body.get("required", ()), schema.get("description"))
        for field, schema in body.get("properties", {}).items()
    ]
    response = json_schema(operation["responses"]["200"])
    sample = json.dumps(example(response, components), indent=2) if response else ""
    return {"name": name, "description": operation.get("description", ""), "fields": fields, "example": sample}


def describe_field(name: str, schema: Schema, is_required: bool, description: str | None) -> dict[str, str]:
    """Return name, type and description of a parameter or a field of a body."""
    default = f", {json.dumps(schema['default'])} by default" if schema.get("default") else ""
    return {
        "name": name,
        "type": describe_type(schema) + (" (required)" if is_required else default),
        "description": description or "",
    }


def json_schema(message: Schema) -> Schema:
    """Return the schema of the JSON body of a request or response; empty if it has none."""
    schema: Schema = message.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def resolve(schema: Schema, components: Schema) -> Schema:
    """Return the component that a schema refers to, or the schema itself."""
    return components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def describe_type(schema: Schema) -> str:
    """Return a type in a few words, with its limits."""
    if "anyOf" in schema:
        return " or ".join(describe_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return "{item, weight}" if name == "WeightedItem" else name
    if schema.get("type") == "array":
        limit = f"at most {schema['maxItems']:,} of: " if "maxItems" in schema else "list of: "
        return limit + describe_type(schema["items"])
    limits = f" from {schema['minimum']:g} to {schema['maximum']:g}" if "maximum" in schema else ""
    return TYPE_NAMES.get(schema.get("type", ""), "anything") + limits


def example(schema: Schema, components: Schema) -> Any:
    """Return a response in which the name of each type stands for a value."""
    schema = resolve(schema, components)
    if "properties" in schema:
        return {name: example(field, components) for name, field in schema["properties"].items()}
    if schema.get("type") == "array":
        return [example(schema["items"], components)]
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return {"…": example(schema["additionalProperties"], components)}
    return describe_type(schema)
