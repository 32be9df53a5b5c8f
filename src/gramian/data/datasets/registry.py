"""The table of named public data sets: where each comes from, its terms, and what its files must hold."""

from __future__ import annotations

from dataclasses import dataclass

BUNDLED = "movielens"


@dataclass(frozen=True)
class Dataset:
    """Where a data set comes from, how its files are recognised, and what it must hold."""

    about: str
    address: str
    terms: str
    files: dict[str, str]  # stem of an event file → the first 16 digits of the sha256 of its parquet form, "" if it has none
    n_users: int
    n_items: int
    n_interactions: int
    value: str | None = None
    time: str | None = None

    @property
    def is_split(self) -> bool:
        return "train" in self.files


GROUPLENS = "files.grouplens.org/datasets"
LIGHTGCN = "the data folder of the repository gusye1234/LightGCN-PyTorch on GitHub"
STRONG = "the repository jaewan7599/RDLAE_SIGIR2023 on GitHub"
AMAZON = "the Amazon review data of Julian McAuley's group, "

DATASETS = {
    "movielens": Dataset(
        "MovieLens latest-small of 2016: ratings of movies, with titles (bundled)",
        f"{GROUPLENS}/movielens",
        "acknowledge; redistribute under the same terms; no commercial use",
        {"ratings": "360b2d5d2ad249b7"},
        671, 9_066, 100_004, value="rating", time="timestamp",
    ),
    "ml-1m": Dataset(
        "MovieLens 1M: ratings of movies, with titles",
        f"{GROUPLENS}/movielens",
        "research use, no redistribution",
        {"ratings": "dcb1d4d89e1c0b26"},
        6_040, 3_706, 1_000_209, value="rating", time="timestamp",
    ),
    "ml-latest-small-2018": Dataset(
        "MovieLens latest-small of 2018: ratings of movies, with titles",
        f"{GROUPLENS}/movielens",
        "acknowledge; redistribute under the same terms; no commercial use",
        {"ratings": "924afd95591b600d"},
        610, 9_724, 100_836, value="rating", time="timestamp",
    ),
    "lastfm-2k": Dataset(
        "last.fm, HetRec 2011: play counts of artists, with names",
        f"{GROUPLENS}/hetrec2011",
        "research use",
        {"interactions": "a4213222e522a7e1"},
        1_892, 17_632, 92_834, value="play_count",
    ),
    "gowalla": Dataset(
        "Gowalla check-ins, the LightGCN train/test split",
        LIGHTGCN,
        "see the source",
        {"train": "b689be4b8d740f56", "test": "0fe02710c8e850be"},
        29_858, 40_981, 1_027_370,
    ),
    "yelp2018": Dataset(
        "Yelp 2018, the LightGCN train/test split",
        LIGHTGCN,
        "see the source",
        {"train": "8cf6f172e4a70993", "test": "031cde78a1a29bca"},
        31_668, 38_048, 1_561_406,
    ),
    "gowalla-strong": Dataset(
        "Gowalla check-ins, the LightGCN interactions in the strong split of Moon et al. (2023)",
        STRONG,
        "see the source",
        {
            "train": "6952a7a560f3160c",
            "validation_fold_in": "98007ef11391349f",
            "validation_target": "dedb015ba14729bc",
            "test_fold_in": "0a6df64b1c970639",
            "test_target": "1c7eb49232e0d0bb",
        },
        29_858, 40_981, 1_027_370,
    ),
    "yelp2018-strong": Dataset(
        "Yelp 2018, the LightGCN interactions in the strong split of Moon et al. (2023)",
        STRONG,
        "see the source",
        {
            "train": "858c6048b9a37e2c",
            "validation_fold_in": "80e9a9c77dccbee9",
            "validation_target": "1ef0fa1b1912410a",
            "test_fold_in": "b26b3a0f566e7158",
            "test_target": "988aea545473fbe9",
        },
        31_668, 38_048, 1_561_406,
    ),
    "amazon-cds-m1": Dataset(
        "Amazon CDs, the SimpleX/BGCF train/test split",
        AMAZON + "as split by SimpleX",
        "see the source",
        {"train": "f3675216439f4c77", "test": "42e6b22f2dade28d"},
        43_169, 35_648, 777_426,
    ),
    "amazon-beauty-m1": Dataset(
        "Amazon Beauty, the SimpleX/BGCF train/test split",
        AMAZON + "as split by SimpleX",
        "see the source",
        {"train": "41df4a42b9f51ba8", "test": "ddfed13ebb581f9e"},
        7_068, 3_570, 79_506,
    ),
    "amazon-videogames-sasrec": Dataset(
        "Amazon Video Games in time order, the SASRec file",
        AMAZON + "as prepared by SASRec",
        "see the source",
        {"interactions": "aacea421916c97ea"},
        31_013, 23_715, 287_107, time="position",
    ),
    "amazon-beauty-bert4rec": Dataset(
        "Amazon Beauty in time order, the BERT4Rec file",
        AMAZON + "as prepared by BERT4Rec",
        "see the source",
        {"interactions": "1b290d7fb1bc14bd"},
        40_226, 54_542, 353_962, time="position",
    ),
    "ml-10m": Dataset(
        "MovieLens 10M: ratings of movies, in half stars",
        f"{GROUPLENS}/movielens/ml-10m.zip (ratings.dat)",
        "research use, no redistribution",
        {"ratings": ""},
        69_878, 10_677, 10_000_054, value="rating", time="timestamp",
    ),
    "ml-20m": Dataset(
        "MovieLens 20M: ratings of movies, in half stars",
        f"{GROUPLENS}/movielens/ml-20m.zip (ratings.csv)",
        "research use, no redistribution",
        {"ratings": ""},
        138_493, 26_744, 20_000_263, value="rating", time="timestamp",
    ),
    "netflix": Dataset(
        "Netflix Prize: ratings of movies, with dates",
        "archive.org/details/nf_prize_dataset.tar (training_set/mv_*.txt) or netflix-inc/netflix-prize-data on Kaggle "
        "(combined_data_*.txt)",
        "research use, no redistribution",
        {"training_set": ""},
        480_189, 17_770, 100_480_507, value="rating", time="date",
    ),
    "msd": Dataset(
        "Million Song Dataset, the Echo Nest taste profiles: play counts of songs",
        "millionsongdataset.com/tasteprofile (train_triplets.txt)",
        "research use, not commercial",
        {"train_triplets": ""},
        1_019_318, 384_546, 48_373_586, value="play_count",
    ),
    "amazon-book": Dataset(
        "Amazon Books, the LightGCN train/test split",
        f"{LIGHTGCN} (train.txt and test.txt)",
        "see the source",
        {"train": "", "test": ""},
        52_643, 91_599, 2_984_108,
    ),
    "electronics": Dataset(
        "Amazon Electronics of 2014, the 5-core: ratings of products",
        "snap.stanford.edu/data/amazon/productGraph/categoryFiles (reviews_Electronics_5.json.gz)",
        "see the source",
        {"reviews_Electronics_5": ""},
        192_403, 63_001, 1_689_188, value="rating", time="timestamp",
    ),
    "steam": Dataset(
        "Steam reviews of games, with dates, collected by Kang and McAuley in 2018",
        "cseweb.ucsd.edu/~jmcauley/datasets.html (steam_reviews.json.gz)",
        "see the source",
        {"steam_reviews": ""},
        2_567_538, 15_474, 7_793_069, time="date",
    ),
    "simplewiki": Dataset(
        "Simple English Wikipedia of January 2025: links from page to page, the 20-core",
        "dumps.wikimedia.org/simplewiki/20250101 (links.tsv, to be made of its pagelinks table: the columns pl_from and "
        "pl_target_id, separated by tabs, without a header, of the links that k_core(20) keeps)",
        "CC BY-SA",
        {"links": ""},
        129_404, 129_432, 13_715_724,
    ),
}  # fmt: skip
