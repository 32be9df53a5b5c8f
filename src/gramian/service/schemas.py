"""The JSON schemas of requests and responses, as /docs and /openapi.json show them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from gramian.data.kinds import MAX_KINDS
from gramian.service.json_ids import JsonId

MAX_BATCH_SIZE = 1_000  # users, and histories, of one batch
MAX_HISTORY_LENGTH = 2_000  # items of one history
MAX_LIST_LENGTH = 500  # k
MAX_FILTER_LENGTH = 10_000  # ids or tags of one filter
MAX_EVENTS = 10_000  # of one request
MAX_INFLUENCES = 50  # users and events of one request: each user costs a few milliseconds
MAX_KEY_LENGTH = 200  # characters of an idempotency key
MAX_STAGES = 8  # of re-ranking
MAX_POOL = 500  # items that an explanation of a missing item considers for adding: 125,000 pairs

StrictId = StrictInt | StrictStr
Weight = Annotated[float, Field(gt=0, lt=3e38, allow_inf_nan=False)]  # float32


# Validation of a list stops at its first error: a million errors would take seconds and gigabytes.
IdList = Annotated[list[StrictId], Field(fail_fast=True)]
TagList = Annotated[list[StrictStr], Field(fail_fast=True)]


class StrictRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WeightedItem(BaseModel):  # other fields are ignored: refusing them would make an error for each of a million
    item: StrictId
    weight: Weight = 1.0
    kinds: Annotated[list[StrictStr], Field(fail_fast=True, max_length=MAX_KINDS)] | None = Field(
        None, description="Kinds of events, such as view and buy, for a model that keeps several kinds apart"
    )


class RerankStage(StrictRequest):
    """A re-ranking stage: its name, and the parameters that differ from their defaults."""

    name: StrictStr = Field(max_length=100, description="Such as MMR, Calibration, PopularityPenalty, MaxPerTag, ReservedSlots")
    params: dict[str, StrictBool | StrictInt | StrictFloat | StrictStr] = Field(
        {}, max_length=20, description='Such as {"diversity": 0.3}; the guide to re-ranking lists them'
    )


class ItemRulesRequest(StrictRequest):
    """Which lists, and which items they may have."""

    model: StrictStr | None = Field(None, description="Name of a model; the first one by default")
    k: StrictInt = Field(10, ge=1, le=MAX_LIST_LENGTH, description="Length of a list")
    allow: IdList | None = Field(None, max_length=MAX_FILTER_LENGTH, description="Recommend only these items")
    deny: IdList = Field([], max_length=MAX_FILTER_LENGTH, description="Recommend none of these items")
    allow_tags: TagList | None = Field(
        None, max_length=MAX_FILTER_LENGTH, description="Recommend only items with one of these tags"
    )
    deny_tags: TagList = Field([], max_length=MAX_FILTER_LENGTH, description="Recommend no items with any of these tags")
    exclude_seen: StrictBool = Field(True, description="Leave out the items of the history")


class ListOptions(ItemRulesRequest):
    """How to make the lists of one request."""

    rerank: Annotated[list[RerankStage], Field(fail_fast=True)] = Field(
        [], max_length=MAX_STAGES, description="Stages that reorder the list, in this order"
    )
    depth: StrictInt = Field(100, ge=1, le=MAX_LIST_LENGTH, description="How many of the best items the stages choose from")


class UserHistory(StrictRequest):
    """A user the model was fitted on, a history of items, or both."""

    user: StrictId | None = Field(None, description="A user the model was fitted on")
    history: Annotated[list[StrictId | WeightedItem], Field(fail_fast=True)] = Field(
        [], max_length=MAX_HISTORY_LENGTH, description="Items, or items with weights"
    )


class RecommendRequest(ListOptions, UserHistory):
    pass


class BatchRequest(ListOptions):
    users: IdList = Field([], max_length=MAX_BATCH_SIZE, description="Users the model was fitted on")
    histories: Annotated[list[Annotated[IdList, Field(max_length=MAX_HISTORY_LENGTH)]], Field(fail_fast=True)] = Field(
        [], max_length=MAX_BATCH_SIZE, description="Lists of items"
    )


class ExplainRequest(UserHistory):
    model: StrictStr | None = Field(None, description="Name of a model; the first one by default")
    item: StrictId = Field(description="The item whose score to explain")


class InfluenceRequest(UserHistory):
    model: StrictStr | None = Field(None, description="Name of a model; the first one by default")
    item: StrictId = Field(description="The item whose score to trace back")
    limit: StrictInt = Field(10, ge=1, le=MAX_INFLUENCES, description="How many users and events to return at most")


class ExplainMissingRequest(ItemRulesRequest, UserHistory):
    item: StrictId = Field(description="The item that is missing; it may be unknown")
    pool: StrictInt = Field(200, ge=1, le=MAX_POOL, description="How many items to consider for adding to the history")


class HistoryRequest(StrictRequest):
    model: StrictStr | None = Field(None, description="Name of a model; the first one by default")
    user: StrictId = Field(description="A user the model was fitted on")
    k: StrictInt = Field(100, ge=1, le=MAX_LIST_LENGTH, description="How many items to return at most")


class SentEvent(BaseModel):  # other fields are ignored, as in WeightedItem
    user: StrictId
    item: StrictId
    weight: Weight = 1.0


class EventsRequest(StrictRequest):
    model: StrictStr | None = Field(None, description="Name of a model; the first one by default")
    events: Annotated[list[SentEvent], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MAX_EVENTS, description="What users did: user, item, and a weight if the model has weights"
    )
    key: StrictStr | None = Field(
        None,
        max_length=MAX_KEY_LENGTH,
        description="Idempotency key: a request with a key that was acknowledged before changes nothing. Use no personal data",
    )


class EventsResponse(BaseModel):
    model: str
    number: int = Field(
        description="Number of the record in the log; the model has learned it once its log_position is as high"
    )
    is_new: bool = Field(description="Whether it was appended now; false if its key was acknowledged before")
    pending: int = Field(description="Events and deletions that wait for the next update")


class ForgetResponse(BaseModel):
    """The receipt for forgetting."""

    format: int
    salt: str
    users: list[str] = Field(description="Salted hashes of the forgotten user ids")
    interactions: int = Field(description="How many interactions were removed")
    recipe: dict[str, Any]
    before: str = Field(description="Hash of the model's folder before")
    after: str = Field(description="Hash of the model's folder now")
    histories: str = Field(description="Fingerprint of the remaining interactions")
    residual: float = Field(description="Largest residual of the equations that a new fit solves")
    bound: float = Field(description="The residual that a new fit may have")
    time: str = Field(description="When the deletion was asked for")
    seconds: float


class TitledItem(BaseModel):
    item: JsonId
    title: str | None = None
    shares_title: bool = Field(False, description="Whether another item of the model has the same title; left out if not")


class ScoredItem(TitledItem):
    score: float


class ListedItem(ScoredItem):
    from_rank: int | None = Field(None, description="The model's own rank, from 1, where the list was re-ranked")


class ItemMove(TitledItem):
    from_rank: int
    to_rank: int | None = Field(description="None if the stage left the item out")
    stage: str
    reason: str


class RankedList(BaseModel):
    items: list[ListedItem] = Field(description="Best first")
    unknown: list[JsonId] = Field(description="Items of the history that the model does not know and ignored")
    fallback: bool = Field(description="Whether no item of the history was known, so that these are the most popular items")


class RecommendResponse(RankedList):
    model: str
    moves: list[ItemMove] | None = Field(None, description="What re-ranking moved, stage by stage; left out without re-ranking")


class BatchList(RankedList):
    user: JsonId | None = Field(None, description="The user, where the request named users")


class BatchResponse(BaseModel):
    model: str
    lists: list[BatchList]
    unknown_users: list[JsonId] = Field(description="Users the model was not fitted on; their lists are empty")


class SimilarResponse(BaseModel):
    model: str
    item: JsonId
    items: list[ScoredItem]


class Contribution(TitledItem):
    value: float
    by_kind: dict[str, float] | None = Field(
        None, description="What each kind of event adds, where the model keeps several apart"
    )


class HistoryItem(TitledItem):
    weight: float
    kinds: list[str] | None = Field(None, description="Kinds of events, where the model keeps several apart")


class HistoryResponse(BaseModel):
    model: str
    user: JsonId
    items: list[HistoryItem] = Field(description="Largest weights first, then the most popular items")
    total: int = Field(description="How many items the history has")


class ExplainResponse(ScoredItem):
    model: str
    contributions: list[Contribution] = Field(
        description="What each history item adds to the score, strongest first; they sum to it"
    )
    features: dict[str, float] = Field(
        description="What each feature of the item adds to the score, where the model learns from features, strongest first"
    )
    unknown: list[JsonId]


class UserInfluence(BaseModel):
    user: JsonId
    value: float = Field(description="The score minus that of a model fitted without it")


class EventInfluence(UserInfluence):
    item: JsonId


class InfluenceResponse(BaseModel):
    model: str
    item: JsonId
    score: float
    users: list[UserInfluence] = Field(description="Training users, strongest first")
    events: list[EventInfluence] = Field(description="Single events of training users, strongest first")


class ChangeOfHistory(BaseModel):
    added: list[TitledItem]
    removed: list[TitledItem]
    rank: int = Field(description="The rank of the item after the change")


class ExplainMissingResponse(TitledItem):
    model: str
    status: str = Field(description="unknown, seen, denied, not allowed, ranked out or recommended")
    k: int
    rank: int | None = Field(description="From 1, among all items that may be listed")
    score: float | None
    lacking: float | None = Field(description="How much more the last item of the list has")
    addition: ChangeOfHistory | None = Field(
        description="The fewest items to add to the history to bring the item in, if found"
    )
    removal: ChangeOfHistory | None = Field(description="The fewest items to remove from it, if found")
    searched: str
    is_exhaustive: bool = Field(description="Whether all changes of one or two items were tried")
    unknown: list[JsonId]
    fallback: bool


class ItemInfo(TitledItem):
    tags: list[str]
    users: int = Field(description="How many users interacted with the item")


class ItemsResponse(BaseModel):
    items: list[ItemInfo]
    unknown: list[JsonId]


class ModelInfo(BaseModel):
    name: str
    recipe: dict[str, Any] = Field(description="Name and parameters")
    spec: str = Field(description="The recipe as text")
    users: int
    items: int
    interactions: int
    titles: bool = Field(description="Whether items have titles")
    tags: list[str]
    loaded: str = Field(description="When the model was loaded")
    log_position: int = Field(description="Number of the last record of its event log that the model has learned")
    failed: str | None = Field(description="Why a newer version on disk is not served")


class ModelsResponse(BaseModel):
    models: list[ModelInfo]


class ModelCard(ModelInfo):
    measured: list[dict[str, Any]] = Field(description="Metrics of the same recipe in the benchmark journal")
    picture: dict[str, Any] | None = Field(description="Spectrum or histogram of the weights")
    popularity: dict[str, list[float]] = Field(description="Share of events and of recommendations by popularity")


class ReloadResponse(BaseModel):
    models: dict[str, bool] = Field(description="Whether each model was replaced")
    failed: dict[str, str] = Field(description="Why newer versions on disk are not served")


class LeaderboardResponse(BaseModel):
    tables: list[dict[str, Any]]


class StatusResponse(BaseModel):
    status: str


class ErrorResponse(BaseModel):
    error: str
