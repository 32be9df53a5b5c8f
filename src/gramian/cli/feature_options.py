"""Options for features of items: a table and its columns, or the tags and titles that the events have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from gramian.cli.options import expand_argument, keyword_option, refuse_options
from gramian.cli.render import note
from gramian.core.recommender import Recommender
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.data.read import read_features
from gramian.errors import InvalidInput

FeatureTable = Annotated[
    Path | None,
    typer.Option("--features", help="A table with features of items, for models that learn from them; --item names its ids."),
]
FeatureTags = Annotated[
    list[str] | None,
    typer.Option("--feature-tags", help="Column of tags or categories; may be repeated. Without --features: tags."),
]
FeatureNumbers = Annotated[list[str] | None, typer.Option("--feature-numbers", help="Column of numbers; may be repeated.")]
FeatureText = Annotated[
    list[str] | None,
    typer.Option("--feature-text", help="Column of text whose words are hashed; may be repeated. Without --features: title."),
]
FeatureVectors = Annotated[
    list[str] | None, typer.Option("--feature-vectors", help="Column of lists of numbers, such as embeddings; may be repeated.")
]
ColdItems = Annotated[
    bool, typer.Option("--cold-items", help="Also recommend the items of --features that have no events, from their features.")
]


@dataclass(frozen=True)
class FeatureSource:
    """Where features of items come from, as the command line says it."""

    features: Path | None
    feature_tags: list[str] | None
    feature_numbers: list[str] | None
    feature_text: list[str] | None
    feature_vectors: list[str] | None
    cold_items: bool

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each kind of feature."""
        names = ("tags", "numbers", "text", "vectors")
        return {name: getattr(self, f"feature_{name}") or [] for name in names}

    def read_features(self, events: Interactions, item: str | None, tag_separator: str) -> Features | None:
        """Read the table, or make features from the tags and titles of the events; None if no features are asked for."""
        columns = self.columns
        if self.features is not None:
            return read_features(
                self.features,
                item,
                tags=columns["tags"],
                numbers=columns["numbers"],
                text=columns["text"],
                vectors=columns["vectors"],
                tag_separator=tag_separator,
            )
        refuse_options("no --features", {"--cold-items": self.cold_items})
        wanted = {name for names in columns.values() for name in names}
        if not wanted:
            return None
        if not (set(columns["tags"]) <= {"tags"} and set(columns["text"]) <= {"title"} and wanted <= {"tags", "title"}):
            got = ", ".join(sorted(wanted))
            raise InvalidInput(
                "--feature-tags tags or --feature-text title, of the events", got, "Name a table: --features FILE"
            )
        return Features.of_catalog(events.catalog, tags="tags" in wanted, titles="title" in wanted)

    def attach(self, events: Interactions, features: Features) -> Interactions:
        """Attach features to the items of the events, and say how many items have features and no events."""
        n_cold = int((events.items.positions(features.items.tolist()) < 0).sum())
        if n_cold:
            use = "to be recommended from their features" if self.cold_items else "ignored; --cold-items would recommend them"
            note(f"{n_cold:,} items of {self.features} have no events: {use}")
        return events.with_features(features.take(events.items.tolist()))

    def add_cold_items(self, model: Recommender, features: Features) -> Recommender:
        """Return the model with the items that have features and no events."""
        cold = features.items[model.catalog.ids.positions(features.items.tolist()) < 0]
        return model.add_items(features.take(cold)) if cold and self.cold_items else model


def add_feature_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of features; it receives them as one argument, `feature_source`."""
    annotations = {
        "features": FeatureTable,
        "feature_tags": FeatureTags,
        "feature_numbers": FeatureNumbers,
        "feature_text": FeatureText,
        "feature_vectors": FeatureVectors,
    }
    options = [keyword_option(name, annotation) for name, annotation in annotations.items()]
    options.append(keyword_option("cold_items", ColdItems, False))
    assert [option.name for option in options] == [field.name for field in fields(FeatureSource)]
    return expand_argument(command, "feature_source", options, lambda values: FeatureSource(**values))
