"""What is asked of the service and what it answers, as JSON: the shapes that its description shows."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from gramian.app.shelf import Histories, Listed, Served

BATCH, HISTORY, LONGEST, FILTER = 1_000, 2_000, 500, 10_000  # lists, items of a history, k, ids or tags of a filter: at most

Id = StrictInt | StrictStr
Weight = Annotated[float, Field(gt=0, lt=3e38, allow_inf_nan=False)]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Weighted(Asked):
    item: Id
    weight: Weight


class Ask(Asked):
    """What the lists of one request have in common."""

    model: StrictStr | None = Field(None, description="By name; the first one, unless told")
    k: StrictInt = Field(10, ge=1, le=LONGEST)
    allow: list[Id] | None = Field(None, max_length=FILTER, description="Only these items")
    deny: list[Id] = Field([], max_length=FILTER, description="None of these items")
    allow_tags: list[StrictStr] | None = Field(None, max_length=FILTER, description="Only items with one of these tags")
    deny_tags: list[StrictStr] = Field([], max_length=FILTER, description="No items with any of these tags")
    exclude_seen: StrictBool = Field(True, description="No items of the history itself")

    def lists(self, served: Served, histories: Histories) -> list[Listed]:
        allowed = served.allowed(self.allow, self.deny, self.allow_tags, self.deny_tags)
        return served.lists(histories, self.k, allowed, exclude_seen=self.exclude_seen)


class Touched(Asked):
    """Somebody: a user the model was fitted on, items of a history, or both."""

    user: Id | None = Field(None, description="A user the model was fitted on")
    history: list[Id | Weighted] = Field([], max_length=HISTORY, description="Items, or items with weights")

    def of(self, served: Served) -> Histories:
        ids = [one.item if isinstance(one, Weighted) else one for one in self.history]
        weights = [one.weight if isinstance(one, Weighted) else 1.0 for one in self.history]
        return served.histories([ids], [weights], [self.user])


class AskOne(Ask, Touched):
    pass


class AskMany(Ask):
    users: list[Id] = Field([], max_length=BATCH, description="Users the model was fitted on")
    histories: list[Annotated[list[Id], Field(max_length=HISTORY)]] = Field([], max_length=BATCH)


class AskWhy(Touched):
    model: StrictStr | None = None
    item: Id


class Item(BaseModel):
    item: int | str
    title: str | None = None
    score: float


class List(BaseModel):
    items: list[Item]
    unknown: list[int | str] = Field(description="Items of the history that the model does not know and ignored")
    fallback: bool = Field(description="Nothing of the history was known: these are the most popular items")


class ListOf(List):
    model: str


class ListFor(List):
    user: int | str | None = Field(None, description="Where users were asked for")


class Lists(BaseModel):
    model: str
    lists: list[ListFor]
    unknown_users: list[int | str] = Field(description="Users the model was not fitted on; their lists are empty")


class Similar(BaseModel):
    model: str
    item: int | str
    items: list[Item]


class Contribution(BaseModel):
    item: int | str
    title: str | None = None
    value: float


class Reason(BaseModel):
    model: str
    item: int | str
    title: str | None = None
    score: float
    contributions: list[Contribution] = Field(
        description="What each history item adds, the strongest first: they sum to the score"
    )
    unknown: list[int | str]


class Found(BaseModel):
    item: int | str
    title: str | None = None
    tags: list[str]
    users: int = Field(description="How many users touched it")


class Items(BaseModel):
    items: list[Found]
    unknown: list[int | str]


class Facts(BaseModel):
    name: str
    recipe: dict[str, Any]
    words: str
    users: int
    items: int
    interactions: int
    titles: bool
    tags: list[str]
    loaded: str
    failed: str | None = Field(description="Why a newer version on disk is not served")


class Models(BaseModel):
    models: list[Facts]


class Model(Facts):
    measured: list[dict[str, Any]]
    picture: dict[str, Any] | None
    popularity: dict[str, list[float]]


class Reloaded(BaseModel):
    models: dict[str, bool] = Field(description="Whether each model was replaced")
    failed: dict[str, str]


class Leaderboard(BaseModel):
    tables: list[dict[str, Any]]


class Status(BaseModel):
    status: str


class Error(BaseModel):
    error: str
