"""Every Python example in README and docs runs, in a folder of its own."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gramian.core.registry import LOSSES, METRICS, MODELS, SCORERS
from spark_support import SPARK_MARKS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


EXAMPLES = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=SPARK_MARKS if page.name == "spark.md" else [], id=page.name) for page in EXAMPLES]
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    if page.name == "spark.md":  # a JVM keeps the working directory it was started in, so this page gets one of its own
        words = [sys.executable, "-c", "\n".join(blocks)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return
    for registry in (MODELS, SCORERS, LOSSES, METRICS):  # what a page registers is gone after it
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page.name, "exec"), {"__name__": "docs"})
    capsys.readouterr()


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_package_leads_to_its_papers():
    bibliography = (ROOT / "docs" / "bibliography.md").read_text()
    assert all(address in bibliography for address in PROJECT["urls"].values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_to_install_exists_and_comes_from_the_clone(page):
    """The package is on no index, so a page says `pip install '.[torch]'`, with the name of an extra."""
    for extras in re.findall(r"pip install '([^']*)'", page.read_text()):
        assert re.fullmatch(r"\.\[[a-z,]+\]", extras), extras
        assert set(extras[2:-1].split(",")) <= set(PROJECT["optional-dependencies"])
