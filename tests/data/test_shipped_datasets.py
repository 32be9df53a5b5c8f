"""Data sets as their publishers ship them: each form is read, and what is damaged is refused."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

import gramian as gr
from data.pairs import pair_set
from gramian.data import datasets
from gramian.errors import DamagedFile

# as the publishers of what is elsewhere ship it

SHIPPED = {  # the data set, its files, and what they hold: user and item → value and time
    "ml-10m": (
        "ml-10m",
        {"ratings.dat": "1::122::5::838985046\n1::185::3.5::838983525\n2::122::0.5::868245777\n"},
        {(1, 122): (5, 838985046), (1, 185): (3.5, 838983525), (2, 122): (0.5, 868245777)},
    ),
    "ml-20m": (
        "ml-20m",
        {"ratings.csv": "userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n1,29,4.0,1112484676\n7,2,0.5,1011208463\n"},
        {(1, 2): (3.5, 1112486027), (1, 29): (4, 1112484676), (7, 2): (0.5, 1011208463)},
    ),
    "netflix, a file per movie": (
        "netflix",
        {
            "training_set/mv_0000001.txt": "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n",
            "training_set/mv_0017770.txt": "17770:\n822109,1,2004-12-31\n",
        },
        {
            (1488844, 1): (3, np.datetime64("2005-09-06")),
            (822109, 1): (5, np.datetime64("2005-05-13")),
            (822109, 17770): (1, np.datetime64("2004-12-31")),
        },
    ),
    "netflix, many movies in a file": (
        "netflix",
        {
            "combined_data_1.txt": "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n822109,4,2005-01-01\n",
            "combined_data_2.txt": "4500:\n2532865,1,2004-12-31\n",
        },
        {
            (1488844, 1): (3, np.datetime64("2005-09-06")),
            (822109, 1): (5, np.datetime64("2005-05-13")),
            (822109, 2): (4, np.datetime64("2005-01-01")),
            (2532865, 4500): (1, np.datetime64("2004-12-31")),
        },
    ),
    "msd": (
        "msd",
        {"train_triplets.txt": "b80344d0\tSOAKIMP12A8C13\t1\nb80344d0\tSOAPDEY12A81C2\t20\n85c1f87f\tSOAKIMP12A8C13\t5\n"},
        {
            ("b80344d0", "SOAKIMP12A8C13"): (1, None),
            ("b80344d0", "SOAPDEY12A81C2"): (20, None),
            ("85c1f87f", "SOAKIMP12A8C13"): (5, None),
        },
    ),
    "amazon-book": (
        "amazon-book",
        {"train.txt": "0 0 1 2\n1 1\n", "test.txt": "0 3\n1 0"},
        {pair: (1, None) for pair in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]},
    ),
    "electronics": (
        "electronics",
        {
            "reviews_Electronics_5.json.gz": '{"reviewerID": "AO94DHGC771SJ", "asin": "0528881469", "reviewerName": "amazdnu", '
            '"helpful": [0, 0], "reviewText": "We got this \\"GPS\\"\\u2026", "overall": 5.0, "summary": "!", '
            '"unixReviewTime": 1370131200, "reviewTime": "06 2, 2013"}\n'
            '{"reviewerID": "AMO214LNFCEI4", "asin": "0528881469", "helpful": [12, 15], "reviewText": "", "overall": 1.0, '
            '"summary": "", "unixReviewTime": 1290643200, "reviewTime": "11 25, 2010"}\n'
        },
        {("AO94DHGC771SJ", "0528881469"): (5, 1370131200), ("AMO214LNFCEI4", "0528881469"): (1, 1290643200)},
    ),
    "steam": (
        "steam",
        {
            # as Python 2 wrote them: escapes, either quote, fields in any order, and reviews that look like fields
            "steam_reviews.json.gz": r"""
{u'username': u'Chaos Syren', u'hours': 0.1, u'product_id': u'725280', u'date': u'2017-12-17', u'text': u'', u'page': 1}
{u'text': u"'username': u'x', 'date': u'2000-01-01', ", u'date': u'2018-01-05', u'product_id': u'620', u'username': u"O'Brien"}
{u'username': u'Ren\xe9 \u2605 \U0001f600', u'text': u'\'"\\', u'found_funny': 2, u'product_id': u'620', u'date': u'2010-10-15'}
{u'username': u'\'"\\', u'product_id': u'620', u'date': u'2010-10-16', u'compensation': u'Product received for free'}
{'username': 'u', 'product_id': '620', 'date': '2010-10-17'}
""".lstrip()
        },
        {
            ("Chaos Syren", "725280"): (1, np.datetime64("2017-12-17")),
            ("O'Brien", "620"): (1, np.datetime64("2018-01-05")),
            ("René ★ 😀", "620"): (1, np.datetime64("2010-10-15")),
            ("'\"\\", "620"): (1, np.datetime64("2010-10-16")),
            ("u", "620"): (1, np.datetime64("2010-10-17")),
        },
    ),
    "simplewiki": (
        "simplewiki",
        {"links.tsv": "1\t7\n1\t9\n1083\t7\n"},
        {(1, 7): (1, None), (1, 9): (1, None), (1083, 7): (1, None)},
    ),
}


@pytest.fixture
def placed(monkeypatch, tmp_path):
    """Put files into the folder of a data set of the registry, and let it hold so many users, items and interactions."""

    def place(name, contents, n_users, n_items, n_interactions):
        for file, content in contents.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            zipped = gzip.compress(content.encode()) if file.endswith(".gz") and isinstance(content, str) else content
            path.write_bytes(zipped.encode() if isinstance(zipped, str) else zipped)
        counts = {"n_users": n_users, "n_items": n_items, "n_interactions": n_interactions}
        monkeypatch.setitem(datasets.DATASETS, name, replace(datasets.DATASETS[name], **counts))
        monkeypatch.setenv("GRAMIAN_DATA", str(tmp_path))

    return place


def counts_of(held):
    return len({user for user, _ in held}), len({item for _, item in held}), len(held)


@pytest.mark.parametrize(("name", "contents", "held"), SHIPPED.values(), ids=SHIPPED.keys())
def test_what_is_elsewhere_loads_as_it_is_shipped(name, contents, held, placed):
    placed(name, contents, *counts_of(held))
    assert gr.datasets.load(name).is_binary
    events = gr.datasets.load(name, weights=datasets.DATASETS[name].value is not None)
    found = list(zip(events.users[events.rows], events.items[events.matrix.indices], strict=True))
    assert dict(zip(found, events.matrix.data.tolist(), strict=True)) == {pair: value for pair, (value, _) in held.items()}
    times = [None] * len(found) if events.times is None else events.times
    assert dict(zip(found, times, strict=True)) == {pair: time for pair, (_, time) in held.items()}


@pytest.mark.parametrize("more", [(1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=["users", "items", "interactions"])
@pytest.mark.parametrize(("name", "contents", "held"), SHIPPED.values(), ids=SHIPPED.keys())
def test_what_is_shipped_in_other_numbers_is_refused(name, contents, held, more, placed, refused):
    placed(name, contents, *np.add(counts_of(held), more).tolist())
    with refused(DamagedFile, mentioning=datasets.DATASETS[name].address):
        gr.datasets.load(name)


def test_a_threshold_selects_among_the_ratings_as_shipped(placed):
    name, contents, held = SHIPPED["ml-10m"]
    placed(name, contents, *counts_of(held))
    assert pair_set(gr.datasets.load(name, min_value=3.5)) == {(1, 122), (1, 185)}


def test_amazon_book_keeps_its_parts_apart(placed):
    name, contents, held = SHIPPED["amazon-book"]
    placed(name, contents, *counts_of(held))
    split = gr.split.published(name)
    assert pair_set(split.train) == {(0, 0), (0, 1), (0, 2), (1, 1)}
    assert pair_set(split.target) == {(0, 3), (1, 0)}


def test_a_missing_part_is_noticed(placed, tmp_path, refused):
    name, contents, held = SHIPPED["netflix, many movies in a file"]
    placed(name, contents, *counts_of(held))
    (tmp_path / name / "combined_data_2.txt").unlink()
    with refused(DamagedFile, mentioning="2, 2 and 3"):
        gr.datasets.load(name)


REVIEW = "{u'username': u'a', u'product_id': u'1', u'date': u'2017-12-17'}\n"
BROKEN = {
    "long line in dat": ("ml-10m", "ratings.dat", "1::2::3::4::5\n"),
    "text between colons": ("ml-10m", "ratings.dat", "1:x:2::3::4\n"),
    "blank line in dat": ("ml-10m", "ratings.dat", "1::2::3::4\n\n1::3::3::4\n"),
    "missing rating in csv": ("ml-20m", "ratings.csv", "userId,movieId,rating,timestamp\n1,2,,4\n"),
    "rating of no movie": ("netflix", "combined_data_1.txt", "1,5,2005-09-06\n1:\n2,5,2005-09-06\n"),
    "rating without a date": ("netflix", "combined_data_1.txt", "1:\n1,5\n"),
    "no such day": ("netflix", "combined_data_1.txt", "1:\n1,5,2005-13-06\n"),
    "word for a movie": ("netflix", "training_set/mv_0000001.txt", "one:\n1,5,2005-09-06\n"),
    "error page as a movie": ("netflix", "training_set/mv_0000001.txt", "<html>not found</html>\n"),
    "binary movie": ("netflix", "training_set/mv_0000001.txt", b"\xff\xfe\x00"),
    "missing count": ("msd", "train_triplets.txt", "a\tb\t1\na\tc\n"),
    "word for a count": ("msd", "train_triplets.txt", "a\tb\tone\n"),
    "four in a triplet": ("msd", "train_triplets.txt", "a\tb\t1\t2\n"),
    "word in amazon-book": ("amazon-book", "train.txt", "0 one\n"),
    "review not zipped": ("electronics", "reviews_Electronics_5.json.gz", b"<html>not found</html>\n"),
    "truncated review": ("electronics", "reviews_Electronics_5.json.gz", gzip.compress(b'{"asin": "1"}\n' * 9)[:-9]),
    "review of nothing": ("electronics", "reviews_Electronics_5.json.gz", '{"reviewerID": "a", "overall": 5.0}\n'),
    "half a review": ("electronics", "reviews_Electronics_5.json.gz", '{"reviewerID": "a", "asin": '),
    "steam not zipped": ("steam", "steam_reviews.json.gz", b"<html>not found</html>\n"),
    "truncated steam": ("steam", "steam_reviews.json.gz", gzip.compress(REVIEW.encode() * 9)[:-9]),
    "steam without a name": ("steam", "steam_reviews.json.gz", REVIEW.replace("username", "name")),
    "steam without a date": ("steam", "steam_reviews.json.gz", REVIEW.replace("2017-12-17", "yesterday")),
    "steam of no such day": ("steam", "steam_reviews.json.gz", REVIEW.replace("2017-12-17", "2017-12-32")),
    "steam with half an escape": ("steam", "steam_reviews.json.gz", REVIEW.replace("u'a'", r"u'\x9'")),
    "steam that is a program": ("steam", "steam_reviews.json.gz", REVIEW.replace("u'a'", "exit()")),
    "header of links": ("simplewiki", "links.tsv", "source\ttarget\n1\t2\n"),
    "link to nothing": ("simplewiki", "links.tsv", "1\t2\n1\n"),
    "three in a link": ("simplewiki", "links.tsv", "1\t2\t3\n"),
}


@pytest.mark.parametrize(("name", "file", "content"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_shipped_damaged_is_refused(name, file, content, placed, tmp_path, refused):
    rest = {"test.txt": "0 1\n"} if name == "amazon-book" else {}
    placed(name, {file: content} | rest, 1, 1, 1)
    with refused(DamagedFile, mentioning=str(tmp_path / name)):  # by its form, not by its counts
        gr.datasets.load(name)


@pytest.mark.parametrize(("name", "contents", "held"), SHIPPED.values(), ids=SHIPPED.keys())
def test_an_empty_file_is_refused(name, contents, held, placed, refused):
    placed(name, dict.fromkeys(contents, ""), *counts_of(held))
    with refused(DamagedFile):
        gr.datasets.load(name)
