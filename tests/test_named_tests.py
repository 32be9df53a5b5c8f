"""Pages name the tests behind their promises, and workflows the tests that they run: those tests exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/reliability.md"])
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / page).read_text())
    assert len(named) > 5
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / file).read_text()]
    assert missing == []


NAMING = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.*"), *ROOT.glob(".github/workflows/*.yml")]


@pytest.mark.parametrize(
    "page", [page for page in sorted(NAMING) if page.suffix in (".md", ".py", ".yml")], ids=lambda p: p.name
)
def test_every_file_of_tests_that_is_named_exists(page):
    assert [file for file in re.findall(r"tests/[\w/]+\.py", page.read_text()) if not (ROOT / file).exists()] == []
