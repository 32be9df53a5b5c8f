"""Every Python example in README and docs runs, in a folder of its own."""

import re
import sys
from pathlib import Path

import pytest

from test_spark import pytestmark as with_spark

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


EXAMPLES = [page for page in PAGES if page.name not in ("results.md", "peers.md")]  # which have figures only


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=with_spark if page.name == "spark.md" else [], id=page.name) for page in EXAMPLES]
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page.name, "exec"), {"__name__": "docs"})
    capsys.readouterr()


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
