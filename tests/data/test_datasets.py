"""Named data sets: the bundled one works anywhere; the others are found, verified, or refused with their address."""

from hashlib import sha256
from importlib.resources import files

import numpy as np
import polars as pl
import pytest

import gramian as gr
from data.pairs import pair_set
from gramian.data import datasets
from gramian.errors import DamagedFile, MissingFile, UnknownId

# users, items and interactions by part, as in shared/data/INVENTORY.md
INVENTORY = {
    "gowalla": (29_858, 40_981, 810_128, 217_242),
    "yelp2018": (31_668, 38_048, 1_237_259, 324_147),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-latest-small-2018": (610, 9_724, 100_836),
    "lastfm-2k": (1_892, 17_632, 92_834),
    "amazon-cds-m1": (43_169, 35_648, 604_475, 172_951),
    "amazon-beauty-m1": (7_068, 3_570, 60_818, 18_688),
    "amazon-videogames-sasrec": (31_013, 23_715, 287_107),
    "amazon-beauty-bert4rec": (40_226, 54_542, 353_962),
    "gowalla-strong": (29_858, 40_981, 821_316, 82_635, 19_230, 84_460, 19_729),
    "yelp2018-strong": (31_668, 38_048, 1_265_341, 118_837, 28_311, 120_242, 28_675),
}
# what is not at hand: users, items and interactions as published, and the files to place
ELSEWHERE = {
    "ml-10m": (69_878, 10_677, 10_000_054, "ratings.dat"),
    "ml-20m": (138_493, 26_744, 20_000_263, "ratings.csv"),
    "netflix": (480_189, 17_770, 100_480_507, "training_set/mv_*.txt", "combined_data_*.txt"),
    "msd": (1_019_318, 384_546, 48_373_586, "train_triplets.txt"),
    "amazon-book": (52_643, 91_599, 2_984_108, "train.txt", "test.txt"),
    "electronics": (192_403, 63_001, 1_689_188, "reviews_Electronics_5.json.gz"),
    "steam": (2_567_538, 15_474, 7_793_069, "steam_reviews.json.gz"),
    "simplewiki": (129_404, 129_432, 13_715_724, "links.tsv"),
}
PUBLISHED_SPLITS = [name for name, counts in INVENTORY.items() if len(counts) == 4]
STRONG_SPLITS = [name for name, counts in INVENTORY.items() if len(counts) == 7]


# the bundled set


def test_the_bundled_set_needs_no_folder(monkeypatch):
    monkeypatch.delenv("GRAMIAN_DATA", raising=False)
    events = gr.datasets.load("movielens")
    assert (events.n_users, events.n_items, events.n_interactions) == (671, 9_066, 100_004)
    assert events.is_binary
    assert len(events.times) == events.n_interactions


def test_the_bundled_set_has_titles():
    events = gr.datasets.load("movielens")
    titles = dict(zip(events.items.tolist(), events.titles, strict=True))
    assert titles[1] == "Toy Story (1995)"
    assert titles[858].startswith("Godfather")
    assert all(isinstance(title, str) and title for title in events.titles)


def test_ratings_can_be_weights_or_a_threshold():
    weighted = gr.datasets.load("movielens", weights=True)
    assert set(np.unique(weighted.matrix.data)) == {stars / 2 for stars in range(1, 11)}
    liked = gr.datasets.load("movielens", min_value=4)
    assert liked.is_binary
    assert liked.n_interactions == (weighted.matrix.data >= 4).sum()
    assert pair_set(liked) < pair_set(weighted)
    by_item = dict(zip(weighted.items.tolist(), weighted.titles, strict=True))
    assert liked.titles == [by_item[item] for item in liked.items.tolist()]


def test_the_package_carries_the_terms_of_the_bundled_data():
    text = (files("gramian.data") / "bundled" / "README.md").read_text(encoding="utf-8")
    for phrase in ("GroupLens", "acknowledge", "redistribute", "commercial", "same conditions"):
        assert phrase.lower() in text.lower()


# the registry


def test_the_registry_holds_the_bundled_set_the_inventory_and_what_is_elsewhere():
    assert set(gr.datasets.names()) == {"movielens", *INVENTORY, *ELSEWHERE}


@pytest.mark.parametrize("name", gr.datasets.names())
def test_every_entry_says_what_it_is_where_it_is_from_and_its_terms(name):
    dataset = datasets.DATASETS[name]
    assert dataset.about
    assert dataset.address
    assert dataset.terms
    if name in ELSEWHERE:
        assert (dataset.n_users, dataset.n_items, dataset.n_interactions) == ELSEWHERE[name][:3]
        assert not any(dataset.files.values())  # the counts verify
    else:
        assert all(len(checksum) == 16 and int(checksum, 16) for checksum in dataset.files.values())


@pytest.mark.parametrize("name", INVENTORY)
def test_a_data_set_of_the_inventory_loads_with_its_published_counts(name, shared_data):
    n_users, n_items, *parts = INVENTORY[name]
    events = gr.datasets.load(name)
    assert (events.n_users, events.n_items, events.n_interactions) == (n_users, n_items, sum(parts))
    assert events.is_binary


@pytest.mark.parametrize("name", PUBLISHED_SPLITS)
def test_a_published_split_keeps_its_parts_apart(name, shared_data):
    n_users, n_items, n_train, n_test = INVENTORY[name]
    split = gr.split.published(name)
    assert (split.train.n_users, split.train.n_items) == (n_users, n_items)
    assert (split.train.n_interactions, split.target.n_interactions) == (n_train, n_test)


@pytest.mark.parametrize("name", STRONG_SPLITS)
def test_a_published_strong_split_holds_out_users(name, shared_data):
    n_users, n_items, n_train, *held_out = INVENTORY[name]
    split = gr.split.published(name)
    parts = [part for half in (split.validation, split) for part in (half.fold_in, half.target)]
    assert [part.n_interactions for part in parts] == held_out
    assert [part.n_users for part in parts] == 4 * [3_000]
    assert (split.train.n_users, split.train.n_items, split.train.n_interactions) == (n_users - 6_000, n_items, n_train)
    assert split.validation.train is split.train
    users = [set(events.users.tolist()) for events in (split.train, split.validation.target, split.target)]
    assert sum(map(len, users)) == len(set.union(*users))  # nobody is in two parts
    for half in (split.validation, split):
        assert half.fold_in.users.tolist() == half.target.users.tolist()
        assert half.fold_in.matrix.multiply(half.target.matrix).nnz == 0
    weak = gr.datasets.load(name.removesuffix("-strong"))
    assert gr.datasets.load(name).fingerprint == weak.fingerprint  # the same interactions, divided otherwise


def test_titles_times_and_weights_of_the_public_sets(shared_data):
    movies = gr.datasets.load("ml-latest-small-2018")
    assert movies.titles[0] == "Toy Story (1995)"
    assert movies.times.min() > 8e8  # seconds since 1970
    plays = gr.datasets.load("lastfm-2k", weights=True)
    assert plays.matrix.data.max() > 1000
    assert len(set(plays.titles)) > 17_000
    assert gr.datasets.load("amazon-videogames-sasrec").times is not None


# what is not there


def test_an_unknown_name_is_answered_with_the_known_ones(refused):
    with refused(UnknownId, mentioning="gowalla"):
        gr.datasets.load("netflicks")


@pytest.mark.parametrize("name", [*INVENTORY, *ELSEWHERE])
def test_without_a_folder_the_error_names_the_address(name, monkeypatch, refused):
    monkeypatch.delenv("GRAMIAN_DATA", raising=False)
    with refused(MissingFile, mentioning=datasets.DATASETS[name].address):
        gr.datasets.load(name)


def test_a_wrong_folder_is_named(monkeypatch, tmp_path, refused):
    monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path / "nowhere"))
    with refused(MissingFile, mentioning=str(tmp_path / "nowhere" / "gowalla")):
        gr.datasets.load("gowalla")
    with refused(MissingFile, mentioning="LightGCN-PyTorch"):
        gr.split.published("gowalla")


def test_an_empty_folder_lacks_the_files(monkeypatch, tmp_path, refused):
    monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))
    (tmp_path / "gowalla").mkdir()
    with refused(MissingFile, mentioning="train.parquet"):
        gr.datasets.load("gowalla")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_files_to_place_are_named(name, monkeypatch, tmp_path, refused):
    monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))
    for file in ELSEWHERE[name][3:]:
        with refused(MissingFile, mentioning=file):
            gr.datasets.load(name)
    (tmp_path / name).mkdir()
    RATINGS.write_parquet(tmp_path / name / "ratings.parquet")  # nobody knows the checksum of such a file
    with refused(MissingFile, mentioning=ELSEWHERE[name][3]):
        gr.datasets.load(name)


def test_a_set_without_values_has_no_weights_and_no_threshold(monkeypatch, tmp_path, refused):
    monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))
    (tmp_path / "gowalla").mkdir()
    for options in ({"weights": True}, {"min_value": 4}):
        with refused(mentioning="gowalla"):
            gr.datasets.load("gowalla", **options)


# small data sets of the published forms

RATINGS = pl.DataFrame(
    {"user_id": [1, 1, 2, 3], "item_id": [10, 20, 10, 30], "rating": [5, 3, 4, 1], "timestamp": [100, 200, 300, 400]}
)


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Register a data set 'tiny' over these files; their contents are text, bytes or a table for parquet."""

    def register(contents, n_users, n_items, n_interactions, **columns):
        folder = tmp_path / "tiny"
        folder.mkdir()
        found = {}
        for name, content in contents.items():
            path = folder / name
            if isinstance(content, pl.DataFrame):
                content.write_parquet(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
            if not name.startswith("items"):
                found[path.stem] = sha256(path.read_bytes()).hexdigest()[:16]
        entry = datasets.Dataset("tiny", "example.org/tiny", "none", found, n_users, n_items, n_interactions, **columns)
        monkeypatch.setitem(datasets.DATASETS, "tiny", entry)
        monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))

    return register


def test_a_parquet_file_of_the_right_checksum_and_counts_is_loaded(registered):
    registered({"ratings.parquet": RATINGS}, 3, 3, 4, value="rating", time="timestamp")
    events = gr.datasets.load("tiny", weights=True)
    assert events.matrix.data.tolist() == [5, 3, 4, 1]
    assert events.times.tolist() == [100, 200, 300, 400]
    assert events.titles is None


def test_titles_come_from_the_items_file(registered):
    items = pl.DataFrame({"item_id": [10, 20, 99], "title": ["Alien", "Brazil", "Unseen"]})
    registered({"ratings.parquet": RATINGS, "items.parquet": items}, 3, 3, 4)
    assert gr.datasets.load("tiny").titles == ["Alien", "Brazil", "30"]


@pytest.mark.parametrize("name", ["ratings.csv", "ratings.dat"])
def test_movielens_as_published_is_the_parquet_form(name, registered):
    rows = RATINGS.rows()
    text = {
        "ratings.csv": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r}.0,{t}\n" for u, i, r, t in rows),
        "ratings.dat": "".join(f"{u}::{i}::{r}::{t}\n" for u, i, r, t in rows),
    }
    registered({name: text[name]}, 3, 3, 4, value="rating", time="timestamp")
    for options in ({}, {"weights": True}, {"min_value": 4}):
        role = {"value": "rating"} if "weights" in options else {"min_value": ("rating", 4)} if options else {}
        expected = gr.Interactions.of(RATINGS, time="timestamp", **role)
        events = gr.datasets.load("tiny", **options)
        assert events.fingerprint == expected.fingerprint
        np.testing.assert_array_equal(events.times, expected.times)


def test_lightgcn_as_published_is_a_line_per_user(registered):
    # users without items, trailing spaces and a missing last line end occur in the published files
    registered({"train.txt": "0 5 7\n1 5\n2 6 \n", "test.txt": "0 6\n1 \n2 5 7"}, 3, 3, 7)
    train, test = {(0, 5), (0, 7), (1, 5), (2, 6)}, {(0, 6), (2, 5), (2, 7)}
    assert pair_set(gr.datasets.load("tiny")) == train | test
    split = gr.split.published("tiny")
    assert pair_set(split.train) == train
    assert pair_set(split.target) == test
    assert split.target.users.tolist() == [0, 2]


def test_held_out_users_as_published(registered):
    frames = {
        "train": ([(0, 5), (0, 6), (1, 7)], pl.Int32),
        "validation_fold_in": ([(2, 5), (3, 6)], pl.Int64),  # the publisher's files differ in the width of ids
        "validation_target": ([(3, 5), (2, 8)], pl.Int64),
        "test_fold_in": ([(4, 6)], pl.Int64),
        "test_target": ([(4, 9), (4, 5)], pl.Int64),
    }
    files = {
        f"{stem}.parquet": pl.DataFrame(rows, schema={"user_id": kind, "item_id": kind}, orient="row")
        for stem, (rows, kind) in frames.items()
    }
    registered(files, 5, 5, 10)
    split = gr.split.published("tiny")
    assert split.train.items.tolist() == [5, 6, 7, 8, 9]  # those of held-out users included
    assert pair_set(split.train) == set(frames["train"][0])
    for name, half in (("validation", split.validation), ("test", split)):
        assert pair_set(half.fold_in) == set(frames[f"{name}_fold_in"][0])
        assert pair_set(half.target) == set(frames[f"{name}_target"][0])
        assert half.fold_in.users.tolist() == half.target.users.tolist()
    assert pair_set(gr.datasets.load("tiny")) == {pair for rows, _ in frames.values() for pair in rows}


def test_a_verified_parquet_file_goes_before_the_text(registered, tmp_path):
    registered({"ratings.parquet": RATINGS}, 3, 3, 4)
    (tmp_path / "tiny" / "ratings.dat").write_text("9::9::9::9\n")
    assert pair_set(gr.datasets.load("tiny")) == {(1, 10), (1, 20), (2, 10), (3, 30)}


# what is damaged


def test_a_tampered_file_of_a_public_set_is_refused(monkeypatch, tmp_path, refused):
    monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))
    (tmp_path / "ml-1m").mkdir()
    RATINGS.write_parquet(tmp_path / "ml-1m" / "ratings.parquet")
    with refused(DamagedFile, mentioning="dcb1d4d89e1c0b26"):
        gr.datasets.load("ml-1m")


def test_one_changed_byte_is_noticed(registered, tmp_path, refused):
    registered({"ratings.parquet": RATINGS}, 3, 3, 4)
    gr.datasets.load("tiny")
    path = tmp_path / "tiny" / "ratings.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with refused(DamagedFile, mentioning="ratings.parquet"):
        gr.datasets.load("tiny")


@pytest.mark.parametrize("counts", [(4, 3, 4), (3, 4, 4), (3, 3, 5)], ids=["users", "items", "interactions"])
@pytest.mark.parametrize("name", ["ratings.parquet", "ratings.dat"])
def test_other_counts_than_published_are_refused(name, counts, registered, refused):
    text = "".join("::".join(map(str, row)) + "\n" for row in RATINGS.rows())
    registered({name: RATINGS if name.endswith("parquet") else text}, *counts)
    with refused(DamagedFile, mentioning="example.org/tiny"):
        gr.datasets.load("tiny")


DAMAGED = {
    "word in lists": ("ratings.txt", "0 5 seven\n"),
    "binary lists": ("ratings.txt", b"\xff\xfe\x00"),
    "error page as lists": ("ratings.txt", "<html>not found</html>\n"),
    "empty lists": ("ratings.txt", ""),
    "empty csv": ("ratings.csv", ""),
    "error page as csv": ("ratings.csv", "<html>not found</html>\n"),
    "long line in csv": ("ratings.csv", "userId,movieId,rating,timestamp\n1,2,3,4\n1,2,3,4,5\n"),
    "word in csv": ("ratings.csv", "userId,movieId,rating,timestamp\nx,2,3,4\n"),
    "word in dat": ("ratings.dat", "1::2::five::4\n"),
    "short line in dat": ("ratings.dat", "1::2::3::4\n1::2\n"),
    "empty dat": ("ratings.dat", ""),
}


@pytest.mark.parametrize(("name", "content"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_text_file_is_refused(name, content, registered, refused):
    registered({name: content}, 3, 3, 4)
    with refused(DamagedFile):
        gr.datasets.load("tiny")


@pytest.mark.parametrize("content", [b"", b"garbage" * 20, pl.DataFrame({"id": [1]})], ids=["empty", "garbage", "columns"])
def test_a_damaged_items_file_is_refused(content, registered, refused):
    registered({"ratings.parquet": RATINGS, "items.parquet": content}, 3, 3, 4)
    with refused(DamagedFile):
        gr.datasets.load("tiny")


def test_a_set_published_whole_has_no_published_split(registered, refused):
    registered({"ratings.parquet": RATINGS}, 3, 3, 4)
    with refused(mentioning="tiny"):
        gr.split.published("tiny")
