"""The description of the service at /docs: its OpenAPI document as a page that needs no network and no script."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any


def page(api: Mapping[str, Any]) -> str:
    info, parts = api["info"], api.get("components", {}).get("schemas", {})
    operations = [
        operation(method, path, facts, parts) for path, methods in api["paths"].items() for method, facts in methods.items()
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Gramian API</title>'
    head += '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page/style.css">'
    intro = f"<h1>Gramian {text(info['version'])}</h1><p>{text(info['description'])}</p>"
    links = '<p><a href="/openapi.json">openapi.json</a> · <a href="/">explorer</a></p>'
    body = f'<main class="docs">{intro}{links}{"".join(operations)}</main>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def operation(method: str, path: str, facts: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    rows = [
        row(p["name"], p["schema"], p.get("required", False), p.get("description", "")) for p in facts.get("parameters", ())
    ]
    body = facts.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows += list(fields(resolved(body, parts))) if body else []
    asked = f"<table><tr><th>field</th><th>type</th><th></th></tr>{''.join(rows)}</table>" if rows else ""
    answers = facts["responses"]["200"]["content"]
    given = resolved(answers.get("application/json", {}).get("schema", {}), parts)
    shape = f"<pre>{text(json.dumps(example(given, parts), indent=2))}</pre>" if given else ""
    said = text(facts.get("description", ""))
    return f"<section><h2><code>{method.upper()} {text(path)}</code></h2><p>{said}</p>{asked}{shape}</section>"


def fields(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, facts in schema.get("properties", {}).items():
        yield row(name, facts, name in schema.get("required", ()), facts.get("description", ""))


def row(name: str, schema: Mapping[str, Any], required: bool, about: str) -> str:
    needed = " (required)" if required else f", {json.dumps(schema['default'])} unless told" if schema.get("default") else ""
    return f"<tr><td><code>{text(name)}</code></td><td>{text(kind(schema))}{text(needed)}</td><td>{text(about)}</td></tr>"


def kind(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with its limits."""
    if "anyOf" in schema:
        return " or ".join(kind(own) for own in schema["anyOf"] if own.get("type") != "null")
    if "$ref" in schema:
        return "{item, weight}" if schema["$ref"].endswith("Weighted") else str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        most = f"at most {schema['maxItems']:,} of: " if "maxItems" in schema else "list of: "
        return most + kind(schema["items"])
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    limits = f" from {schema['minimum']:g} to {schema['maximum']:g}" if "maximum" in schema else ""
    return words.get(schema.get("type", ""), "anything") + limits


def resolved(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def example(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Any:
    """What an answer looks like: each value by its type."""
    schema = resolved(schema, parts)
    if "properties" in schema:
        return {name: example(own, parts) for name, own in schema["properties"].items()}
    if schema.get("type") == "array":
        return [example(schema["items"], parts)]
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return {"…": example(schema["additionalProperties"], parts)}
    return kind(schema)


def text(words: object) -> str:
    return html.escape(str(words))
