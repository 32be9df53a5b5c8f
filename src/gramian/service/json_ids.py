"""Ids in JSON requests and responses: numbers and text as they are, ids of other types (dates, UUIDs, bytes) as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gramian.data.ids import Index
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.io.ids import ID_CODECS

JsonId = int | str
MAX_SHOWN = 80  # characters of an id that an error repeats


class JsonIds:
    """Translate between an index of ids and JSON.

    Parameters
    ----------
    index
        The ids of the users or items of a model.
    expected, do
        The words of the error for an unknown id: what was expected, and what to do instead.
    """

    def __init__(self, index: Index, expected: str, do: str) -> None:
        self.index, self.expected, self.do = index, expected, do
        self.type = type(index.values[0]).__name__ if len(index) and index.values.dtype == object else "int"
        if self.type in ("bool", "tuple"):
            raise NotSupported("ids that a request can name (numbers, text, times)", self.type, "Fit with other ids")
        self.is_native = self.type in ("int", "str")  # JSON has the type
        text_codecs: dict[str, tuple[Callable[[Any], Any], Callable[[str], Any]]] = {
            "int": (str, parse_integer),
            "float": (str, parse_float),
        }
        self.to_text, self.from_text = text_codecs.get(self.type, ID_CODECS[self.type])

    def encode(self, ids: list[Any]) -> list[JsonId]:
        """Return ids of the model as JSON has them."""
        return ids if self.is_native else [self.to_text(id) for id in ids]

    def decode(self, ids: Sequence[JsonId]) -> list[Any]:
        """Return the model's ids for ids from a request; an id the model does not know stays as it was sent."""
        if self.type == "str":
            return list(ids)
        if self.type == "int":
            return [id if isinstance(id, int) else self._decode_text(id) for id in ids]
        return [self._decode_text(id) for id in ids]

    def _decode_text(self, sent: JsonId) -> Any:
        try:
            id = self.from_text(str(sent))
        except (ValueError, ArithmeticError):  # not written like an id of this type
            return sent
        return id if self.index.positions([id])[0] >= 0 else sent

    def find(self, sent: JsonId) -> Any:
        """Return the model's id for one id from a request, or raise `UnknownId`."""
        (id,) = self.decode([sent])
        if self.index.positions([id])[0] < 0:
            raise UnknownId(self.expected, repr(sent), self.do)
        return id

    def parse(self, sent: JsonId) -> Any:
        """Return an id from a request in the type of the index, whether the index has it or not, or raise `InvalidInput`."""
        try:
            if self.type == "str":
                return sent if isinstance(sent, str) else self._refuse(sent)
            return sent if isinstance(sent, int) and self.type == "int" else self.from_text(str(sent))
        except (ValueError, ArithmeticError):
            return self._refuse(sent)

    def _refuse(self, sent: JsonId) -> Any:
        raise InvalidInput(f"an id of type {self.type}, as the model has them", repr(sent)[:MAX_SHOWN], "Send such an id")


def parse_integer(text: str) -> int:
    """Return the integer that is written in this way only: "10" is 10, while "1_0", "010" and " 10" are other ids."""
    number = int(text)
    if str(number) != text:
        raise ValueError(text)
    return number


def parse_float(text: str) -> float:
    """Return a number written without Python's digit separators."""
    if "_" in text:
        raise ValueError(text)
    return float(text)
