"""The models that are served: loaded from their folders, replaced when a folder is, and spoken to in ids that JSON can hold."""

from __future__ import annotations

import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.ids import Index
from gramian.data.interactions import csr
from gramian.errors import GramianError, InvalidInput, NotSupported, UnknownId
from gramian.linalg.memory import available
from gramian.linalg.topk import ranked
from gramian.models import load
from gramian.models.scorers import ItemWeights, Unfolded
from gramian.recommender import Hide, Recommender
from gramian.store import CODECS, MANIFEST

Id = int | str
Stamp = tuple[int, ...]
ONE_AT_A_TIME = threading.Lock()  # kernels that use every core, of which some cannot run beside others
GIVING_WAY = 0.001  # seconds in which who waits for it takes it: a lock has no queue
MANY = 100  # people who are answered as a batch is


class Named:
    """An index whose ids are written as JSON has them: numbers and text as they are, all others as text."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.kind = type(index.values[0]).__name__ if len(index) and index.values.dtype == object else "int"
        if self.kind in ("bool", "tuple"):
            raise NotSupported("ids that a request can name (numbers, text, times)", self.kind, "Fit with other ids")
        codec: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (str, float) if self.kind == "float" else CODECS[self.kind]
        self.write, self.read = codec

    def ids(self, positions: np.ndarray) -> list[Any]:
        found = self.index[positions]
        return found if self.kind in ("int", "str") else [self.write(one) for one in found]

    def positions(self, ids: Sequence[Id]) -> np.ndarray:
        """Where ids from a request stand, −1 where unknown. A number may come as text."""
        return self.index.positions(ids if self.kind == "str" else [self.own(one) for one in ids])

    def own(self, given: Id) -> Any:
        """An id as the model has it; None where no id of its type is written like that."""
        if self.kind == "int" and isinstance(given, int):
            return given
        try:
            return int(given) if self.kind == "int" else self.read(str(given))
        except (ValueError, ArithmeticError):
            return None


def plain(text: str) -> str:
    """Without case and accents, to be found by somebody who types neither."""
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


@dataclass(frozen=True)
class Histories:
    """What some people touched, a row each in the model's columns; and what of it the model does not know."""

    matrix: sp.csr_array
    unknown: list[list[Id]]


@dataclass(frozen=True)
class Listed:
    """A list of items, best first, as JSON has it."""

    items: list[dict[str, Any]]
    unknown: list[Id]
    fallback: bool  # nothing was known, so these are the most popular items


class Served:
    """A loaded model under its name."""

    def __init__(self, name: str, model: Recommender) -> None:
        self.name, self.model = name, model
        self.events, self.loaded = model.events, datetime.now(UTC)
        self.items, self.users = Named(self.events.items), Named(self.events.users)
        self.tags = sorted({tag for own in self.events.tags or () for tag in own})

    def titles(self, columns: np.ndarray) -> list[dict[str, str]]:
        titles = self.events.titles
        return [{} for _ in columns] if titles is None else [{"title": titles[column]} for column in columns]

    def histories(
        self,
        given: Sequence[Sequence[Id]],
        weights: Sequence[Sequence[float]] | None = None,
        users: Sequence[Id | None] | None = None,
    ) -> Histories:
        """Histories of items that count 1 each, or as told; what a known user has touched comes first, as the model has it."""
        flat = list(chain.from_iterable(given))
        rows, columns = np.repeat(np.arange(len(given)), [len(own) for own in given]), self.items.positions(flat)
        values = np.ones(len(flat), np.float32) if weights is None else np.array(list(chain.from_iterable(weights)), np.float32)
        here, unknown = columns >= 0, [[] for _ in given]  # type: tuple[np.ndarray, list[list[Id]]]
        for missing in np.flatnonzero(~here):
            unknown[rows[missing]].append(flat[missing])
        parts = [(rows[here], columns[here], values[here])]
        asked = [at for at, user in enumerate(users or ()) if user is not None]
        if users is not None and asked:
            own = self.events.matrix[[self.row(user) for user in users if user is not None]]
            parts.insert(0, (np.repeat(asked, np.diff(own.indptr)), own.indices, own.data))
        rows, columns, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        n = self.events.n_items
        once, first = np.unique(rows * n + columns, return_index=True)
        return Histories(csr(once // n, once % n, values[first], (len(given), n)), unknown)

    def row(self, user: Id) -> int:
        row = int(self.users.positions([user])[0])
        if row < 0:
            raise UnknownId(f"a user that {self.name} was fitted on", repr(user), "Send the history instead")
        return row

    def column(self, item: Id) -> int:
        column = int(self.items.positions([item])[0])
        if column < 0:
            raise UnknownId(f"an item that {self.name} was fitted on", repr(item), "Look it up with GET /items")
        return column

    def allowed(
        self,
        allow: Sequence[Id] | None,
        deny: Sequence[Id],
        allow_tags: Sequence[str] | None,
        deny_tags: Sequence[str],
    ) -> np.ndarray | None:
        """Which columns may be shown; None for all."""
        if allow is None and allow_tags is None and not deny and not deny_tags:
            return None
        mask = np.full(self.events.n_items, allow is None)
        mask[known(self.items.positions(allow or ()))] = True
        if allow_tags is not None:
            mask &= self.tagged(allow_tags)
        mask &= ~self.tagged(deny_tags)
        mask[known(self.items.positions(deny))] = False
        return mask

    def tagged(self, tags: Iterable[str]) -> np.ndarray:
        """Which items have any of these tags."""
        mask = np.zeros(self.events.n_items, np.bool_)
        for tag in tags:
            mask[self._by_tag.get(tag, [])] = True
        return mask

    @cached_property
    def _by_tag(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for column, own in enumerate(self.events.tags or ()):
            for tag in own:
                found.setdefault(tag, []).append(column)
        return found

    def lists(
        self, histories: Histories, k: int, allowed: np.ndarray | None = None, *, exclude_seen: bool = True
    ) -> list[Listed]:
        """The k best items for each history."""
        with ONE_AT_A_TIME:
            columns, scores = self.model.top_k(histories.matrix, k, allowed=allowed, hide=Hide(exclude_seen))
        empty = (np.diff(histories.matrix.indptr) == 0).tolist()
        rows = zip(columns, scores, histories.unknown, empty, strict=True)
        return [Listed(self.shown(best, own), unknown, fallback) for best, own, unknown, fallback in rows]

    def similar(self, item: Id, k: int) -> dict[str, Any]:
        """An item, and the k that are most similar to it."""
        column = np.array([self.column(item)])
        with ONE_AT_A_TIME:
            found = self.model.similar_items(self.events.items[column][0], k)
        others = self.shown(self.events.items.positions(found.items[0]), np.array(found.scores[0]))
        return {"item": self.items.ids(column)[0], "items": others}

    def explain(self, item: Id, history: Histories) -> dict[str, Any]:
        """What each history item adds to the score of an item, the strongest first."""
        column, touched = self.column(item), history.matrix.indices
        with ONE_AT_A_TIME:
            parts = self.model.scorer.contributions(touched, history.matrix.data, column)
        order = np.argsort(-np.abs(parts), kind="stable")
        named = self.shown(touched[order], parts[order], "value")
        (asked,) = self.shown(np.array([column]), np.array([parts.sum()]))
        return asked | {"contributions": named, "unknown": history.unknown[0]}

    def shown(self, columns: np.ndarray, values: np.ndarray, what: str = "score") -> list[dict[str, Any]]:
        """Items with their titles and a number each; a short list ends in −1."""
        columns = columns[columns >= 0]
        named = zip(self.items.ids(columns), self.titles(columns), values[: len(columns)].tolist(), strict=True)
        return [{"item": item, **title, what: value} for item, title, value in named]

    def look_up(self, ids: Sequence[Id]) -> tuple[list[dict[str, Any]], list[Id]]:
        """What is known of items, and which of the ids are not known."""
        at = self.items.positions(ids)
        return self.described(known(at)), [ids[int(n)] for n in np.flatnonzero(at < 0)]

    def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        """Items whose title, or id where there are no titles, has these words: those that begin with them first."""
        wanted = plain(query).strip()
        at = [text.find(wanted) for text in self._texts]
        found = np.flatnonzero(np.array(at) >= 0)
        later = np.array([at[column] > 0 for column in found], np.bool_)
        inside = np.array([at[column] > 0 and self._texts[column][at[column] - 1].isalnum() for column in found], np.bool_)
        order = np.lexsort((-self.events.popularity[found], inside, later))
        return self.described(found[order][:limit])

    @cached_property
    def _texts(self) -> list[str]:
        return [plain(str(text)) for text in self.events.titles or self.items.ids(np.arange(self.events.n_items))]

    def described(self, columns: np.ndarray) -> list[dict[str, Any]]:
        tags, users = self.events.tags, self.events.popularity
        named = zip(self.shown(columns, users[columns], "users"), columns, strict=True)
        return [shown | {"tags": [] if tags is None else list(tags[column])} for shown, column in named]

    def facts(self) -> dict[str, Any]:
        events = self.events
        return {
            "name": self.name,
            "recipe": self.model.recipe.to_json(),
            "words": str(self.model.recipe),
            "users": events.n_users,
            "items": events.n_items,
            "interactions": events.n_interactions,
            "titles": events.titles is not None,
            "tags": self.tags,
            "loaded": self.loaded.isoformat(timespec="seconds"),
        }

    def warm(self, n: int = 1) -> None:
        """Compile, or read from the cache, what answers n people at once; what cannot answer fails here."""
        self.lists(self.histories([[], *[self.items.ids(np.arange(1))] * n]), 10)

    def unfold(self) -> None:
        """Hold an item-item model's matrix whole where memory allows: in a file it is half, which is slow for one user."""
        folded = self.model.scorer
        if type(folded) is not ItemWeights or Unfolded.n_bytes(folded) > available() / 2:
            return
        steps = Unfolded.steps(folded)
        unfolded = None
        while unfolded is None:
            with ONE_AT_A_TIME:
                unfolded = next(steps)
            time.sleep(GIVING_WAY)
        self.model = Recommender(unfolded, self.model.recipe, self.events)


def read_kernels() -> None:
    """Read the compiler and the kernels that every list needs from the disk: what takes longest of a first answer."""
    ranked(np.zeros(1, np.float32), 1, np.ones(1, np.bool_))


def known(positions: np.ndarray) -> np.ndarray:
    return positions[positions >= 0]


class Shelf:
    """Models by name. A folder that was replaced is loaded and swapped in whole; one that is broken never is."""

    def __init__(self, folders: Sequence[Path]) -> None:
        names = [folder.resolve().name for folder in folders]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None or not names:
            got = "no folder" if twice is None else f"two folders named {twice}"
            raise InvalidInput("model folders with different names", got, "Pass each model once")
        self.folders = dict(zip(names, (folder.resolve() for folder in folders), strict=True))
        self.seen = {name: stamp(folder) for name, folder in self.folders.items()}
        self.models = {name: Served(name, load(folder)) for name, folder in self.folders.items()}
        self.failed: dict[str, str] = {}
        self.lock = threading.Lock()

    def __getitem__(self, name: str | None) -> Served:
        """A model by name, or the first."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise UnknownId(f"a model among {', '.join(self.models)}", repr(name), "Choose one of them")
        return self.models[name]

    def refresh(self, *, again: bool = False) -> dict[str, bool]:
        """Load what has changed on disk, or with `again` what failed before too; whether each model is a new one."""
        with self.lock:
            return {name: self._refreshed(name, folder, again) for name, folder in self.folders.items()}

    def _refreshed(self, name: str, folder: Path, again: bool) -> bool:
        found = stamp(folder)
        if not again and found in ((), self.seen[name]):  # gone for the moment, while it is being replaced; or the same
            return False
        if found == self.seen[name] and name not in self.failed:
            return False
        self.seen[name] = found
        try:
            fresh = Served(name, load(folder))
            fresh.unfold()
            fresh.warm()
            fresh.warm(MANY)
        except Exception as error:  # whatever is wrong with the new one, the old one goes on
            why = str(error) if isinstance(error, GramianError) else f"{type(error).__name__}: {error}"
            self.failed[name] = why.replace(str(folder), name)  # where it lies is nobody's business
            return False
        self.models[name] = fresh
        self.failed.pop(name, None)
        return True


def stamp(folder: Path) -> Stamp:
    """What changes when a folder is replaced; empty while it is not there."""
    try:
        facts = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return (facts.st_mtime_ns, facts.st_ino, facts.st_size)
