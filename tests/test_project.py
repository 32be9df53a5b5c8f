"""The files around the code agree with it: version, citation, minimum versions, the site's pages and the Dockerfile."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_minimum_versions_are_those_that_the_package_asks_for():
    text = (ROOT / "constraints-minimum.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", text, flags=re.MULTILINE))
    extras = [PROJECT["optional-dependencies"][extra] for extra in ("serve", "tune", "plot")]
    for requirement in (*PROJECT["dependencies"], *(line for extra in extras for line in extra)):
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        assert (pinned[name] + ".0").startswith(version), requirement


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r"(\w+)\.md$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    assert not {page.stem for page in (ROOT / "docs").glob("*.md")} - set(navigation)


def test_the_dockerfile_keeps_its_rules():
    code = "import runpy; runpy.run_path('scripts/check_image.py')['check_rules']()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_workflows_are_valid_yaml():
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text()), path
    matrix = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["matrix"]["strategy"]["matrix"]
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert matrix["python"] == versions
