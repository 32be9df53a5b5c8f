"""Ids as JSON: each type that can be saved, with the functions that write and read it."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from gramian.errors import NotSupported

MAX_TUPLE_DEPTH = 16  # levels of nested tuples
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def keep_value(value: Any) -> Any:
    """Return a value that JSON holds as it is."""
    return value


def lists_to_tuples(value: Any, depth: int = MAX_TUPLE_DEPTH) -> Any:
    """Turn lists, which JSON makes of tuples, back into tuples, nested at most `depth` deep."""
    if not isinstance(value, list | tuple):
        return value
    if depth == 0:
        raise ValueError("ids that are nested too deeply")
    return tuple(lists_to_tuples(v, depth - 1) for v in value)


def parse_decimal(text: str) -> decimal.Decimal:
    """Return a finite decimal number. Others cannot be found again: NaN is not equal to itself."""
    number = decimal.Decimal(text)
    if not number.is_finite():
        raise ValueError("an id that is not a number")
    return number


ID_CODECS: dict[str, Codec] = {
    "str": (keep_value, keep_value),
    "int": (keep_value, keep_value),
    "float": (keep_value, keep_value),
    "bool": (keep_value, keep_value),
    "tuple": (keep_value, lists_to_tuples),
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "datetime": (dt.datetime.isoformat, dt.datetime.fromisoformat),
    "UUID": (str, uuid.UUID),
    "Decimal": (str, parse_decimal),
}


def encode_ids(ids: list[Any]) -> dict[str, Any]:
    """Return ids of one type as JSON from which `decode_ids` restores the same ids."""
    name = type(ids[0]).__name__ if ids else "str"
    if name not in ID_CODECS:
        raise NotSupported(f"ids of a type that can be saved ({', '.join(ID_CODECS)})", name, "Use str or int ids")
    encode = ID_CODECS[name][0]
    encoded = {"type": name, "values": [encode(value) for value in ids]}
    try:
        decode_ids(encoded)
    except ValueError as error:
        raise NotSupported("ids that can be restored", str(error), "Use str or int ids") from None
    return encoded


def decode_ids(encoded: Mapping[str, Any]) -> list[Any]:
    """Restore the ids that `encode_ids` wrote. Raises an error if they are not all of the type that they claim to be."""
    name, values = encoded["type"], encoded["values"]
    decode = ID_CODECS[name][1]
    ids = list(values) if decode is keep_value else [decode(value) for value in values]
    if not isinstance(values, list) or not {type(value).__name__ for value in ids} <= {name}:
        raise ValueError(f"ids that are not all of type {name}")
    if name == "str":
        "".join(ids).encode()  # half of a surrogate pair is no text that can be printed or sent
    return ids
