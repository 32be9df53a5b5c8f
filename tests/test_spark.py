"""The same on a cluster as on one machine: ids, Grams, models, splits and lists. Sessions are local[2] here."""

import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.errors import Inaccurate, NotSupported, UsersElsewhere
from gramian.sampled import FactorModel
from gramian.spark.als import Alone, Exchanging
from gramian.spark.events import in_blocks

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None and "CI" not in os.environ, reason="no Java on this machine"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets that PySpark leaves to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("gramian tests").config("spark.ui.enabled", "false")
    settings = {"spark.sql.shuffle.partitions": 2, "spark.default.parallelism": 3, "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def table():
    """Events with text and number ids in no order, weights, repeats and times."""
    rng = np.random.default_rng(0)
    n = 3000
    users = np.array([f"u{n}" for n in rng.permutation(400)])[rng.integers(0, 150, n)]
    items = rng.permutation(1000)[(60 * rng.random(n) ** 2).astype(int)]
    times = rng.integers(0, 10**6, n)
    return pl.DataFrame({"user": users, "item": items, "stars": rng.integers(1, 6, n).astype(float), "at": times})


@pytest.fixture(scope="module")
def frame(session, table):
    return session.createDataFrame(table.to_arrow())


@pytest.fixture(scope="module")
def here(table):
    return gr.Interactions.of(table, user="user", item="item", time="at")


@pytest.fixture(scope="module")
def there(frame):
    return gr.spark.interactions(frame, user="user", item="item", time="at")


@pytest.fixture(scope="module")
def wide():
    """More items than a block column has."""
    return clustered(200, 1_100, 9_000).compact()


@pytest.fixture(scope="module")
def wide_there(session, wide):
    return gr.spark.interactions(session.createDataFrame(wide.frame().to_arrow()))


def assert_same(found, wanted):
    assert found.users == wanted.users
    assert found.items == wanted.items
    assert (found.matrix != wanted.matrix).nnz == 0
    assert (found.times is None) == (wanted.times is None)
    if wanted.times is not None:
        np.testing.assert_array_equal(found.times, wanted.times)


def test_ids_are_numbered_as_on_one_machine(there, here):
    assert_same(there.local(), here)
    assert (there.n_users, there.n_items, there.n_interactions) == (here.n_users, here.n_items, here.n_interactions)
    assert there.is_binary
    np.testing.assert_array_equal(there.popularity, here.popularity)
    assert str(there).startswith("SparkInteractions(")
    rows = np.concatenate([block.rows for block in there.shape.rdd(there.blocks).collect()])
    assert there.blocks.count() == 3
    assert sorted(rows) == list(range(here.n_users))  # every user in one block only


def test_weights_add_up_and_thresholds_drop(frame, table):
    found = gr.spark.interactions(frame, user="user", item="item", value="stars")
    assert not found.is_binary
    assert_same(found.local(), gr.Interactions.of(table, user="user", item="item", value="stars"))
    found = gr.spark.interactions(frame, user="user", item="item", min_value=("stars", 4))
    assert_same(found.local(), gr.Interactions.of(table, user="user", item="item", min_value=("stars", 4)))


def test_times_may_be_timestamps_and_titles_come_along(session, table):
    dated = table.with_columns(pl.from_epoch("at").alias("at"), ("Title of " + pl.col("item").cast(str)).alias("title"))
    spark_frame = session.createDataFrame(dated.with_columns(pl.col("at").dt.replace_time_zone("UTC")).to_arrow())
    found = gr.spark.interactions(spark_frame, user="user", item="item", time="at", title="title")
    wanted = gr.Interactions.of(dated, user="user", item="item", time="at", title="title")
    assert_same(found.local(), wanted)
    assert found.local().titles == wanted.titles
    again = gr.spark.interactions(found.frame(), time="time")
    assert_same(again.local(), wanted)
    walls = found.frame().withColumn("a`b.c", F.col("time").cast("timestamp_ntz"))
    session.conf.set("spark.sql.session.timeZone", "UTC")
    assert_same(gr.spark.interactions(walls, time="a`b.c").local(), wanted)


def test_a_user_of_a_million_events(session):
    busy = session.range(1_000_000).select(F.lit("busy").alias("user"), (F.col("id") % 300).alias("item"))
    rest = session.range(40).select(F.lit("rest").alias("user"), F.col("id").alias("item"))
    found = gr.spark.interactions(busy.union(rest), user="user", item="item")
    assert (found.n_users, found.n_items, found.n_interactions) == (2, 300, 340)
    assert gr.spark.gram(found).matrix.dense()[0, 0] == 2


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gram_is_that_of_one_machine(wide, wide_there, normalised, dtype):
    found = gr.spark.gram(wide_there, dtype, normalised=normalised)
    wanted = gr.Gram.of(wide, dtype, normalised=normalised)
    np.testing.assert_allclose(found.matrix.dense(), wanted.matrix.dense(), rtol=1e-6)
    assert found.items == wanted.items
    assert (found.n_users, found.is_binary, found.is_normalised) == (wide.n_users, True, normalised)
    if not normalised:
        dense = wide.matrix.toarray()
        np.testing.assert_array_equal(found.matrix.dense(), dense.T @ dense)


def test_the_normalised_gram_of_one_machine_is_its_definition(here, refused):
    x = here.matrix.toarray().astype(np.float64)
    wanted = x.T @ (x / x.sum(axis=1)[:, None])
    gram = gr.Gram.of(here, "float64", normalised=True)
    np.testing.assert_allclose(gram.matrix.dense(), wanted, rtol=1e-6)
    with refused(mentioning="row-normalised"):
        gr.EASE().fit_gram(gram)
    with refused(mentioning="row-normalised"):
        gr.RG2().fit_gram(gr.Gram.of(here))
    with refused(mentioning="row-normalised"):
        gr.Gram.of(here, "float64") + gram


def test_items_nobody_touched_have_an_empty_gram(session, wide):
    few = wide.keep(wide.matrix.indices < 40)
    found = gr.spark.interactions(session.createDataFrame(few.frame().to_arrow()))
    empty = replace(found, shape=found.shape._replace(n_items=1_100), catalog=replace(wide, touched=None))
    dense = gr.spark.gram(empty).matrix.dense()
    assert dense[:40, :40].any()
    assert not dense[40:].any()


CLOSED = [
    gr.Popularity(),
    gr.EASE(l2=20),
    gr.DEQL(dropout=0.4, kept_weight=0.7, l2=5),
    gr.SLIM(l1=1, l2=5),
    gr.LRR(rank=10, l2=5),
    gr.DropoutMF(keep=0.9),
    gr.LowRankDLAE(rank=10, dropout=0.3, l2=5),
    gr.LowRankEDLAE(rank=10, dropout=0.3, l2=5, truncate="weights"),
    gr.ADMMEDLAE(rank=5, n_epochs=3),
    gr.RG2(rank=10, l2=0.05),
]
ALTERNATING = [
    gr.RG2ALS(rank=6, l2=0.1, n_epochs=3),
    gr.RG2ALS(rank=6, l2=0.1, n_epochs=3, negative_weight=0.5),
    gr.RGX(rank=6, l2=0.1, n_epochs=3, form="exact"),
    gr.IALS(rank=6, n_epochs=3),
    gr.IALS(rank=6, n_epochs=2, solver=gr.Cholesky()),
    gr.IALS(rank=6, n_epochs=2, solver=gr.Subspace(size=4)),
    gr.WRMF(rank=6, n_epochs=2, l2=3),
    gr.DebiasedIALS(rank=6, n_epochs=2),
]


@pytest.mark.parametrize("recipe", CLOSED + ALTERNATING, ids=str)
def test_models_are_those_of_one_machine(recipe, there, here):
    found, wanted = (recipe.fit(events, dtype="float64") for events in (there, here))
    scores = wanted.scores(here)
    np.testing.assert_allclose(found.scores(here), scores, atol=1e-6 * np.abs(scores).max())
    assert found.items == wanted.items
    assert found.users == wanted.users
    assert found.recommend(here.users[:3], k=5).items == wanted.recommend(here.users[:3], k=5).items


@pytest.mark.parametrize("recipe", [r for r in CLOSED if not isinstance(r, gr.Popularity)], ids=str)
def test_spectral_and_closed_forms_need_the_gram_only(recipe, here):
    """The seam that the cluster uses: a Gram in place of the interactions."""
    gram = gr.Gram.of(here, "float64", normalised=recipe.normalised)
    before = gram.matrix.buffer.copy()
    histories = here.matrix[:20].astype(np.float64)
    wanted = recipe.fit(here, dtype="float64").scorer
    scores = [np.hstack([panel.copy() for _, panel in s.panels(histories)]) for s in (recipe.fit_gram(gram), wanted)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6 * np.abs(scores[1]).max())
    np.testing.assert_array_equal(gram.matrix.buffer, before)


def test_weighted_models_are_those_of_one_machine(frame, table, refused):
    there = gr.spark.interactions(frame, user="user", item="item", value="stars")
    here = gr.Interactions.of(table, user="user", item="item", value="stars")
    for recipe in (gr.EASE(l2=20), gr.RG2(rank=5, l2=0.05), gr.IALS(rank=5, n_epochs=2)):
        scores = recipe.fit(here, dtype="float64").scores(here)
        np.testing.assert_allclose(recipe.fit(there, dtype="float64").scores(here), scores, atol=1e-6 * np.abs(scores).max())
    for recipe in (gr.WRMF(rank=5), gr.DebiasedEASE()):
        with refused(mentioning="0/1"):
            recipe.fit(there)


@pytest.fixture
def epochs(monkeypatch):
    """How many epochs were run."""
    seen = []
    for way in (Alone, Exchanging):
        monkeypatch.setattr(way, "epoch", lambda self, items, epoch=way.epoch: (seen.append(1), epoch(self, items))[1])
    return seen


@pytest.mark.parametrize("recipe", [gr.RG2ALS(rank=5, l2=0.1, n_epochs=6), gr.IALS(rank=5, n_epochs=6)], ids=str)
def test_training_goes_on_from_its_checkpoints(recipe, there, here, frame, tmp_path, refused, epochs):
    def train(events, n_epochs, path, **how):
        epochs.clear()
        found = gr.spark.fit(replace(recipe, n_epochs=n_epochs), events, dtype="float64", scratch=tmp_path / path, **how)
        return found.scores(here), len(epochs)

    whole = recipe.fit(there, dtype="float64").scores(here)
    assert train(there, 4, "kept", every=2)[1] == 4
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"gramian-epoch-even", "gramian-epoch-odd"}
    scores, n = train(there, 6, "kept", every=10)
    assert n == 2
    np.testing.assert_allclose(scores, whole, rtol=1e-9, atol=1e-12)
    assert train(there, 6, "kept")[1] == 0
    with refused(mentioning="those of another"):
        replace(recipe, l2=0.5).fit(there, dtype="float64", scratch=str(tmp_path / "kept"))
    with refused(mentioning="at most 2 epochs"):
        replace(recipe, n_epochs=2).fit(there, dtype="float64", scratch=str(tmp_path / "kept"))
    # what a kill between the two writes leaves: the users of a later epoch, or no items; the one before is gone on from
    train(there, 3, "cut", every=1)
    newest = tmp_path / "cut" / "gramian-epoch-even"  # of epochs 1 and 3
    if isinstance(recipe, gr.IALS):
        shutil.rmtree(newest / "users")
        shutil.copytree(tmp_path / "kept" / "gramian-epoch-even" / "users", newest / "users")
    else:
        shutil.rmtree(newest / "items")
    scores, n = train(there, 6, "cut")
    assert n == 4
    np.testing.assert_allclose(scores, whole, rtol=1e-9, atol=1e-12)


def test_training_goes_on_in_other_blocks_and_not_on_other_data(there, here, frame, session, tmp_path, refused, epochs):
    recipe = gr.IALS(rank=5, n_epochs=4)
    whole = recipe.fit(there, dtype="float64").scores(here)
    gr.spark.fit(replace(recipe, n_epochs=2), there, dtype="float64", scratch=tmp_path / "kept")
    epochs.clear()
    again = replace(there, blocks=reblocked(there, 5), shape=there.shape._replace(times=None))
    found = recipe.fit(again, dtype="float64", scratch=tmp_path / "kept")
    assert len(epochs) == 2
    np.testing.assert_allclose(found.scores(here), whole, rtol=1e-6, atol=1e-9)
    weighted = gr.spark.interactions(frame, user="user", item="item", value="stars")
    with refused(mentioning="those of another"):
        recipe.fit(weighted, dtype="float64", scratch=tmp_path / "kept")
    few = gr.spark.interactions(session.createDataFrame([("a", 1), ("a", 2), ("b", 1), ("b", 3)], "user string, item int"))
    gr.spark.fit(gr.IALS(rank=1, n_epochs=2), few, scratch=tmp_path / "few")
    epochs.clear()
    gr.spark.fit(gr.IALS(rank=1, n_epochs=3), few, scratch=tmp_path / "few")  # of more blocks than users
    assert len(epochs) == 1


def reblocked(events, n_blocks):
    """The same users in another number of blocks, as a cluster of another size would have them."""
    user = F.col("user_id").alias("user")
    part = events.frame().select(user, F.col("item_id").alias("item"))
    return in_blocks(part, events.items, events.shape._replace(times=None), n_blocks)


def test_users_are_numbered_by_their_ids_alone(session):
    """A range partition is drawn from a sample, anew at each look: numbers must not depend on it."""
    table = session.range(30_000).selectExpr("concat('u', hash(id)) user", "id % 7 item")
    found = gr.spark.interactions(table, user="user", item="item")
    before = found.local()
    session.catalog.clearCache()
    assert_same(found.mapped(lambda block: block).local(), before)
    assert before.users.tolist() == sorted(before.users.tolist())


def test_the_core_is_that_of_one_machine(there, here, refused):
    for k in ((9,), (12, 5), (0, 30)):
        assert_same(there.k_core(*k).local(), here.k_core(*k))
    with refused(mentioning="nothing left"):
        there.k_core(1_000)
    with refused(mentioning="k of at least 0"):
        there.k_core(-1)


SPLITS = {
    "strong": {"validation_users": 0.1, "test_users": 30, "seed": 3},
    "weak": {"validation": 0.1, "test": 0.2, "seed": 1},
    "leave_last": {"k": 2},
    "temporal": {"test_from": 800_000, "validation_from": 700_000},
}


@pytest.mark.parametrize("name", SPLITS)
def test_splits_are_those_of_one_machine(name, there, here):
    found = getattr(gr.spark.split, name)(there, **SPLITS[name])
    wanted = getattr(gr.split, name)(here, **SPLITS[name])
    assert_same(found.train.local(), wanted.train)
    for part, other in ((found, wanted), (found.validation, wanted.validation)):
        assert_same(part.fold_in.local(), other.fold_in)
        assert_same(part.target.local(), other.target)
    report = gr.evaluate(gr.EASE(l2=20).fit(found.train), found.local(), ["ndcg@10"])
    assert report["ndcg@10"] == pytest.approx(gr.evaluate(gr.EASE(l2=20).fit(wanted.train), wanted, ["ndcg@10"])["ndcg@10"])


def test_splits_refuse_what_makes_no_sense(there, here, frame, refused):
    untimed = gr.spark.interactions(frame, user="user", item="item")
    for divide in (gr.spark.split.leave_last, lambda events: gr.spark.split.temporal(events, test_from=1)):
        with refused(mentioning="times"):
            divide(untimed)
    with refused(mentioning="test users"):
        gr.spark.split.strong(there, test_users=10_000)
    with refused(mentioning="comparable"):
        gr.spark.split.temporal(there, test_from="noon")
    with refused(mentioning="Swap"):
        gr.spark.split.temporal(there, test_from=5, validation_from=6)
    with refused(mentioning="gr.split"):
        gr.spark.split.weak(here)
    with refused(mentioning="a seed of at least 0"):
        gr.spark.split.strong(there, seed=-1)
    with refused(mentioning="between 0 and 1"):
        gr.spark.split.weak(there, test=2.0)
    with refused(mentioning="k of at least 1"):
        gr.spark.split.leave_last(there, k=0)
    with refused(mentioning="at least one target"):
        gr.spark.split.temporal(there, test_from=10**9)
    with refused(mentioning="before the cut"):
        gr.spark.split.temporal(there, test_from=-1)


def test_a_split_without_validation_has_none(session):
    rows = [("a", 1, 1), ("a", 2, 2), ("b", 1, 1), ("b", 3, 2)]
    found = gr.spark.interactions(session.createDataFrame(rows, "user string, item int, at int"), time="at")
    split = gr.spark.split.leave_last(found)
    assert split.validation is None
    assert split.target.n_interactions == 2


@pytest.mark.parametrize("recipe", [gr.EASE(l2=20), gr.IALS(rank=5, n_epochs=2), gr.Popularity()], ids=str)
def test_lists_for_all_are_those_of_one_machine(recipe, there, here, tmp_path):
    model = recipe.fit(here)
    gr.spark.recommend(model, there, 7).write.parquet(str(tmp_path / "lists"))
    model.recommend_to(tmp_path / "wanted.parquet", 7)
    places = (tmp_path / "lists" / "*.parquet", tmp_path / "wanted.parquet")
    found, wanted = (pl.read_parquet(place).sort("user", "rank") for place in places)
    assert found.columns == wanted.columns
    assert found["user"].equals(wanted["user"])
    assert found["item"].equals(wanted["item"])
    np.testing.assert_allclose(found["score"], wanted["score"], rtol=1e-5)


def test_lists_for_users_of_other_items_and_with_filters(session, there, here, table):
    some = table.filter(pl.col("item") % 3 > 0)
    model = gr.EASE(l2=20).fit(gr.Interactions.of(some, user="user", item="item").with_titles({}))
    allow, deny = model.items[:20], model.items[:2]
    lists = pl.DataFrame(gr.spark.recommend(model, there, 5, allow=allow, deny=deny).toArrow())
    assert set(lists["item"]) <= set(allow) - set(deny)
    assert lists["title"].to_list() == [str(item) for item in lists["item"]]
    user = here.users.tolist()[7]
    history = [here.items.tolist()[c] for c in here.matrix[[7]].indices]
    wanted = model.recommend_for([history], 5, allow=allow, deny=deny).items[0]
    assert lists.filter(user=user).sort("rank")["item"].to_list() == wanted
    seen = pl.DataFrame(gr.spark.recommend(model, there, 50, exclude_seen=False).toArrow()).filter(user=user)["item"]
    assert set(history) & set(model.items) & set(seen)


def test_a_model_of_too_many_interactions_knows_its_items_only(there, here, tmp_path, monkeypatch, refused):
    monkeypatch.setattr("gramian.spark.fitting.KEPT", 10)
    with pytest.warns(UsersElsewhere, match="recommend_for"):
        model = gr.EASE(l2=20).fit(there)
    wanted = gr.EASE(l2=20).fit(here)
    assert model.users == []
    history = [here.items.tolist()[c] for c in here.matrix[[7]].indices]
    for found in (model, (model.save(tmp_path / "model"), gr.load(tmp_path / "model"))[1]):
        assert found.recommend_for([history, []], 5).items == wanted.recommend_for([history, []], 5).items
        with refused(NotSupported, mentioning="cluster"):
            found.add_users(gr.Interactions.of(pl.DataFrame({"user": ["new"], "item": [1]})))


def test_bad_tables_are_refused(session, frame, table, refused):
    def read(part, **named):
        return gr.spark.interactions(part, **({"user": "user", "item": "item"} | named))

    with refused(mentioning="every row of 'user'"):
        read(frame.withColumn("user", F.when(F.col("at") > 500_000, F.col("user"))))
    with refused(mentioning="every row of 'item'"):
        read(frame.withColumn("item", F.when(F.col("at") > 500_000, F.col("item"))))
    with refused(mentioning="whole numbers or text"):
        read(frame.withColumn("item", F.array("item")))
    with refused(mentioning="double"):
        read(frame.withColumn("user", F.col("stars")))
    with refused(mentioning="numbers in 'user'"):
        read(frame, value="user")
    with refused(mentioning="weights above 0"):
        read(frame.withColumn("stars", F.col("stars") - 1), value="stars")
    with refused(mentioning="finite numbers"):
        read(frame.withColumn("stars", F.when(F.col("at") > 9, F.lit(float("nan"))).otherwise(1.0)), min_value=("stars", 1))
    with refused(mentioning="a time in every row"):
        read(frame.withColumn("at", F.when(F.col("at") > 500_000, F.col("at"))), time="at")
    with refused(mentioning="a time in every row"):
        read(frame.withColumn("at", F.when(F.col("at") > 9, F.lit(float("nan"))).otherwise(1.0)), time="at")
    with refused(mentioning="dates or times"):
        read(frame, time="user")
    with refused(mentioning="weights above 0 and below 3e38"):
        read(frame.withColumn("stars", F.lit(3e38)), value="stars")
    with refused(mentioning="differ in more than their case"):
        read(frame.withColumnRenamed("at", "USER"))
    with refused(mentioning="at least one event"):
        read(frame.limit(0))
    with refused(mentioning="at least one interaction"):
        read(frame, min_value=("stars", 99))
    with refused(mentioning="a column named 'nobody'"):
        read(frame, user="nobody")
    with refused(mentioning="a Spark DataFrame"):
        read(table)


def test_what_cannot_be_done_there_is_said(there, here, tmp_path, refused):
    for recipe in (gr.RG2NewtonCG(rank=4), FactorModel()):
        with refused(NotSupported, mentioning="one machine"):
            recipe.fit(there)
    with refused(NotSupported, mentioning="scratch"):
        gr.EASE().fit(there, scratch=tmp_path)
    with refused(mentioning="a rank of at most"):
        gr.IALS(rank=500).fit(there)
    with refused(mentioning="every of at least 1"):
        gr.spark.fit(gr.IALS(rank=4), there, every=0)
    with refused(mentioning="Use recipe.fit"):
        gr.spark.fit(gr.EASE(), here)
    with refused(mentioning="gr.spark.interactions"):
        gr.spark.gram(here)
    model = gr.Popularity().fit(here)
    with refused(mentioning="recommend_to"):
        gr.spark.recommend(model, here)
    with refused(mentioning="a fitted model"):
        gr.spark.recommend(gr.EASE(), there)
    with refused(mentioning="k of at least 1"):
        gr.spark.recommend(model, there, 0)


def test_errors_of_tasks_are_told_in_their_own_words(there, refused):
    with refused(Inaccurate, mentioning="positive definite"):
        gr.RGX(rank=20, l2=0, interaction=there.n_items, n_epochs=2).fit(there)


def test_without_pyspark_the_wing_says_what_to_install():
    code = "import sys; sys.modules['pyspark'] = None; import gramian as gr; gr.spark"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Install gramian[spark]" in run.stderr


def test_arrow_ids_keep_their_type(there):
    frame = there.frame()
    assert dict(frame.dtypes) == {"user_id": "string", "item_id": "bigint", "value": "float", "time": "bigint"}
    assert pa.types.is_int64(frame.toArrow().schema.field("item_id").type)
