"""Where events are read from: files, globs and folders, standard input, and addresses such as https:// and s3://."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl

from gramian.errors import InvalidInput, MissingFile

STANDARD_INPUT = "-"
FORMATS = {".csv": ".csv", ".tsv": ".tsv", ".parquet": ".parquet", ".jsonl": ".jsonl"}  # suffix → format
FORMATS |= {".txt": ".csv", ".tab": ".tsv", ".pq": ".parquet", ".ndjson": ".jsonl"}
EVENT_FORMATS = tuple(dict.fromkeys(FORMATS.values()))
TEXT_FORMATS = (".csv", ".tsv")
COMPRESSIONS = (".gz", ".zst")
CHUNK_BYTES = 16 * 2**20  # large enough for Polars to use all cores, small beside the columns that are kept
GZIP_MAGIC, PARQUET_MAGIC = b"\x1f\x8b", b"PAR1"  # the first bytes of such files


@dataclass(frozen=True)
class Source:
    """One file, address or standard input.

    Parameters
    ----------
    name
        What an error message calls it.
    format
        One of `EVENT_FORMATS`.
    content
        The bytes of standard input; None for files and addresses.
    """

    name: str
    format: str
    content: bytes | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is an address such as s3://bucket/events.parquet."""
        return is_address(self.name)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, decompressed. Polars fetches addresses and decompresses zst, with a line feed after each line."""
        if self.content is not None:
            yield self.content
        elif self.is_remote or self.name.lower().endswith(".zst"):
            lines = pl.scan_lines(self.name if self.is_remote else Path(self.name), name="line", glob=False)
            for batch in lines.collect_batches(maintain_order=True):
                yield "".join(f"{line}\n" for line in batch["line"].to_list()).encode()
        else:
            with (gzip.open if self.name.lower().endswith(".gz") else open)(self.name, "rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk


def is_address(path: str | Path) -> bool:
    """Whether a path is an address that Polars fetches."""
    return urlsplit(str(path)).scheme in ("http", "https", "s3", "gs", "gcs", "az", "abfs", "abfss", "hf")


def find_sources(path: str | Path, separator: str | None = None) -> list[Source]:
    """Return the sources behind a path, a glob, a folder, an address or "-", all of one format.

    With a separator, a single file of any suffix is text.
    """
    if path == STANDARD_INPUT:
        return [_read_standard_input()]
    if is_address(path):
        return [Source(str(path), _text_or_format(Path(urlsplit(str(path)).path), separator))]
    paths = find_event_files(path, separator)
    return [Source(str(p), _text_or_format(p, separator)) for p in paths]


def find_event_files(path: str | Path, separator: str | None = None) -> list[Path]:
    """Return the data files behind a path, a glob or a folder, all of one format; hidden files and folders are left out."""
    if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
        raise InvalidInput("a path", repr(path), "Pass a file, a glob or a folder")
    root = Path(path)
    try:
        paths = _list_files(root)
    except OSError as error:  # such as a name that is too long
        raise InvalidInput("a path that can be read", f"{error.strerror}: {str(path)[:80]}", "Check the path") from None
    if not paths:
        raise MissingFile(f"a file at {path}", "nothing there", "Check the path; a folder or a glob works too")
    formats = sorted({_text_or_format(p, separator) for p in paths})
    if len(formats) > 1:
        raise InvalidInput(f"files of one format in {path}", " and ".join(formats), "Name one with a glob such as '*.csv'")
    return paths


def _list_files(root: Path) -> list[Path]:
    if root.is_dir():
        inside = sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())
        return [root / p for p in inside if not any(name.startswith((".", "_")) for name in p.parts)]
    if root.exists():
        return [root]
    return sorted(Path(p) for p in glob(str(root), recursive=True) if Path(p).is_file()) if has_magic(str(root)) else []


def file_format(path: Path) -> str:
    """Return the format of a file by its suffix."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSIONS]
    last = suffixes[-1] if suffixes else ""
    if last not in FORMATS:
        do = "Rename or convert the file, or pass separator=',' if it is text"
        raise InvalidInput(f"one of {', '.join(EVENT_FORMATS)}", path.name, do)
    return FORMATS[last]


def _text_or_format(path: Path, separator: str | None) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return ".csv" if separator is not None and not set(suffixes) & set(FORMATS) else file_format(path)


def _read_standard_input() -> Source:
    """Read all of standard input; its first bytes tell its format."""
    content = sys.stdin.buffer.read()
    if content.startswith(GZIP_MAGIC):
        content = gzip.decompress(content)
    is_json = content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    name = ".parquet" if content.startswith(PARQUET_MAGIC) else ".jsonl" if is_json else ".csv"
    return Source("standard input", name, content)
