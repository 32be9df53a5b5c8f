"""Hooks of the documentation site (mkdocs.yml).

They add the pages that are not in docs/ (README, changelog, examples, the reference), turn formulas into MathML, and fail the
build where a public name has no docstring or is on no page, and where a page would need another host.
"""

import html
import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import typer
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import gramian as gr
from gramian.cli.main import build_app
from gramian.core import epochs, params, recipe, scorer
from gramian.experiments import experiment
from gramian.service.api_docs import describe_operation
from gramian.service.app import create_app

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = {  # files outside docs/ → their pages
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "speed.md",
    "examples/README.md": "examples/index.md",
}
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")  # no scheme: a relative link
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
OUTSIDE = re.compile(r"""(?:\bsrc=|<link[^>]*\bhref=|url\(|@import )["']?(?:https?:)?//[^"')\s>]+""")


def public_classes(module: ModuleType) -> list[str]:
    """Return the names of a module's public classes, in the order of their definition."""
    return [name for name, value in vars(module).items() if isinstance(value, type) and name[0] != "_"]


MODELS = [name for name in dir(gr) if getattr(gr, name) in gr.MODELS.values()]
API_PAGES: dict[str, tuple[str, dict[str, list[str]]]] = {  # page → title, and module → names
    "data": (
        "Data",
        {
            "gramian": ["read", "describe", "Profile", "Interactions", "Catalog", "Features", "Split"],
            "gramian.data.split": ["strong", "weak", "leave_last", "temporal", "cold_items", "published"],
            "gramian.data.datasets": ["load", "names"],
        },
    ),
    "models": (
        "Models",
        {
            "gramian.core.recipe": ["Recipe"],
            "gramian": [
                *MODELS,
                *("DecoupledAutoencoder", "LowRankRegression", "Cholesky", "ConjugateGradient", "Subspace"),
                *("SteckUpdates", "PrintedUpdates", "equivalent"),
            ],
        },
    ),
    "recommender": (
        "Fitted models",
        {
            "gramian": [
                *("Recommender", "Recommendations", "Explanation", "Influence", "MissingExplanation", "HistoryChange", "Gram"),
            ],
            "gramian.core.recommender": ["load_model"],
        },
    ),
    "evaluation": (
        "Evaluation",
        {
            "gramian": [
                "evaluate",
                "evaluate_by_popularity",
                "Report",
                "compare",
                "ModelComparison",
                "leave_one_user_out",
                "Metric",
            ]
        },
    ),
    "rerank": ("Re-ranking", {"gramian.rerank": public_classes(gr.rerank)}),
    "tuning": ("Tuning", {"gramian": ["tune", "Search", "rank_path", "RankPath", "epoch_path", "EpochPath"]}),
    "selection": ("Model selection", {"gramian": ["auto", "Selection", "retrain", "Retraining"]}),
    "gradient": (
        "Models trained by gradients",
        {"gramian.gradient": public_classes(gr.gradient)},
    ),
    "extending": (
        "Writing models and metrics",
        {
            "gramian": ["register"],
            "gramian.core.params": ["param", "configurable"],
            "gramian.core.recipe": ["GramRecipe"],
            "gramian.core.epochs": ["EpochRecipe"],
            "gramian.core.scorer": ["Scorer"],
        },
    ),
    "errors": (
        "Errors and warnings",
        {"gramian.errors": public_classes(gr.errors)},
    ),
    "experiments": (
        "Experiment files",
        {"gramian.experiments.experiment": ["ExperimentData", "ModelEntry", "Curve", "Experiment"]},
    ),
}
SPARK_NAMES = re.findall(r" as (\w+)", (ROOT / "src/gramian/spark/__init__.py").read_text())  # read: PySpark is not needed here
MODULES: dict[str, ModuleType] = {
    "gramian": gr,
    "gramian.gradient": gr.gradient,
    "gramian.rerank": gr.rerank,
    "gramian.data.split": gr.split,
    "gramian.data.datasets": gr.datasets,
    "gramian.errors": gr.errors,
    "gramian.core.recommender": inspect.getmodule(gr.Recommender),
    "gramian.core.params": params,
    "gramian.core.recipe": recipe,
    "gramian.core.epochs": epochs,
    "gramian.core.scorer": scorer,
    "gramian.experiments.experiment": experiment,
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made and not written."""
    check_docstrings()
    pages = {f"reference/{name}.md": api_page(title, names) for name, (title, names) in API_PAGES.items()}
    pages["reference/experiments.md"] = experiment_page() + pages["reference/experiments.md"].partition("\n")[2]
    pages["reference/spark.md"] = api_page("Spark", {"gramian.spark": SPARK_NAMES})
    pages |= {"reference/cli.md": cli_page(), "reference/http.md": http_page()}
    pages |= {f"examples/{path.stem}.md": example_page(path) for path in sorted((ROOT / "examples").glob("*.py"))}
    pages |= {uri: move_links((ROOT / source).read_text(), source, uri) for source, uri in PROJECT_PAGES.items()}
    for source in sorted(linked_sources()):
        pages[page_of(source)] = listing_page(source)
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the page of the file."""
    written = not page.file.generated_by
    return move_links(markdown, f"docs/{page.file.src_uri}", page.file.src_uri) if written else markdown


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML, which browsers show without scripts or fonts of the page."""
    return FORMULA.sub(lambda match: to_mathml(html.unescape(match[3]), is_block=match[1] == "div"), content)


def on_post_build(config: Any) -> None:
    """Fail if a file of the site would load something from another host."""
    for path in sorted(Path(config["site_dir"]).rglob("*")):
        if path.suffix in (".html", ".css") and (outside := OUTSIDE.findall(path.read_text())):
            raise PluginError(f"{path.name} needs another host: {outside[:3]}")


def to_mathml(formula: str, *, is_block: bool) -> str:
    """Return a LaTeX formula as MathML."""
    mathml = convert(formula.strip(), display="block" if is_block else "inline")
    return f'<div class="formula">{mathml}</div>' if is_block else mathml


def resolve_link(target: str, source: str) -> str:
    """Return the path in the repository that a link in a file leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def move_links(text: str, source: str, uri: str) -> str:
    """Return the text of a file with its relative links as they are from its page."""

    def replace(match: re.Match[str]) -> str:
        target = resolve_link(match[1], source)
        if not (ROOT / target).exists():
            return match[0]
        page = page_of(target)
        return f"]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{match[2] or ''})"

    return LINK.sub(replace, text)


def page_of(target: str) -> str:
    """Return the page that shows a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target.startswith("examples/") and target.endswith(".py"):
        return target.removesuffix(".py") + ".md"
    return PROJECT_PAGES.get(target, f"source/{target.strip('/')}.md")


def linked_sources() -> set[str]:
    """Return the files and folders outside docs/ that pages link to and that are no pages themselves."""
    pages = [*PROJECT_PAGES, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
    targets = {resolve_link(match[1], page) for page in pages for match in LINK.finditer((ROOT / page).read_text())}
    return {target for target in targets if (ROOT / target).exists() and page_of(target).startswith("source/")}


def listing_page(source: str) -> str:
    """Return the page of a file or folder: its text, or the names in it."""
    path = ROOT / source
    if path.is_dir():
        return f"# {source}\n\n" + "".join(f"- `{child.name}`\n" for child in sorted(path.iterdir()) if child.is_file())
    if path.suffix == ".md":
        return path.read_text()
    language = {".py": "python", ".toml": "toml", ".yml": "yaml"}.get(path.suffix, "text")
    return f"# {path.name}\n\n`{source}`\n\n````{language}\n{path.read_text()}\n````\n"


def api_page(title: str, names: dict[str, list[str]]) -> str:
    """Return a page of the API reference."""
    blocks = [f"# {title}\n"]
    for module, members in names.items():
        for name in members:
            shown = "load" if name == "load_model" else name  # its public name
            prefix = {"gramian.data.split": "split.", "gramian.data.datasets": "datasets."}.get(module, "")
            heading = f"{prefix}{shown}"
            blocks.append(f"::: {module}.{name}\n    options:\n      heading: {heading}\n      toc_label: {heading}\n")
    return "\n".join(blocks)


def experiment_page() -> str:
    """Return the opening of the page of experiment files: the file that the module's docstring shows."""
    opening, _, file = inspect.getdoc(experiment).partition("\n\n")
    file, _, closing = file.rpartition("\n\n")
    return f"# Experiment files\n\n{opening}\n\n```toml\n{file}\n```\n\n{closing}\n"


def check_docstrings() -> None:
    """Raise if a public name has no docstring or is on no page of the reference."""
    listed = {(module, name) for _, names in API_PAGES.values() for module, members in names.items() for name in members}
    missing = [place for module, name in sorted(listed) for place in undocumented(getattr(MODULES[module], name), name)]
    public = {name for name in dir(gr) if name[0] != "_" and not isinstance(getattr(gr, name), ModuleType)}
    public -= {"MODELS", "load"}
    unlisted = public - {name for module, name in listed if module == "gramian"}
    if missing or unlisted:
        raise PluginError(f"without a docstring: {missing}; on no page of the reference: {sorted(unlisted)}")


def undocumented(thing: Any, name: str) -> Iterator[str]:
    """Yield what has no docstring: a function or class, or one of its public methods and properties."""
    if not inspect.getdoc(thing):
        yield name
    for attribute, member in vars(thing).items() if isinstance(thing, type) else ():
        is_method = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if is_method and attribute[0] != "_" and not inspect.getdoc(getattr(thing, attribute)):
            yield f"{name}.{attribute}"


def cli_page() -> str:
    """Return the reference of the command line, from the declarations of its commands."""
    group = typer.main.get_command(build_app())
    parts = ["# Command line\n", "Every command explains itself: `gramian fit --help`.\n"]
    for name, command in group.commands.items():
        arguments = "".join(f" {p.name.upper()}" for p in command.params if not p.opts[0].startswith("-"))
        parts.append(f"## gramian {name}\n\n{command.help}\n\n```sh\ngramian {name}{arguments} [OPTIONS]\n```\n")
        example = command.epilog.removeprefix("Example: ")
        parts.append(f"Example: `{example}`\n")
        panels: dict[str, list[str]] = {}
        for option in command.params:
            panels.setdefault(option.rich_help_panel or "", []).append(option_row(option))
        for panel, rows in panels.items():
            table = "\n".join(["| option | type | |", "|---|---|---|", *rows]) + "\n"
            parts.append(f'??? note "{panel}"\n\n' + indent(table) if panel else table)
    return "\n".join(parts)


def indent(text: str) -> str:
    """Return a text four columns to the right: the content of a collapsed block."""
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


def option_row(option: Any) -> str:
    """Return the row of an option or argument in the table of its command."""
    flags = ", ".join(f"`{flag if flag.startswith('-') else flag.upper()}`" for flag in (*option.opts, *option.secondary_opts))
    annotation = option.type_descriptor.annotation
    kind = "flag" if getattr(option, "is_flag", False) else getattr(annotation, "__name__", str(annotation))
    about = " ".join((option.help or "").replace("\n- ", "<br>").removeprefix("- ").split())
    default = option.default
    if option.show_default and default not in (None, False, "", ()) and isinstance(default, str | int | float | Path):
        about += f" Default: `{default}`."
    return f"| {flags} | {kind} | {escape_cell(about)} |"


def escape_cell(text: str) -> str:
    """Return a text whose bars do not end a cell of a table, and whose braces are no attributes of it."""
    return re.sub(r"(\{[^}]*\})", r"`\1`", text.replace("|", "\\|"))


def http_page() -> str:
    """Return the reference of the HTTP service, from its OpenAPI document."""
    with TemporaryDirectory() as folder:  # the service needs a model; which one makes no difference here
        gr.Popularity().fit(gr.Interactions.of(np.eye(2))).save(f"{folder}/model")
        openapi = create_app([f"{folder}/model"]).openapi()
    components = openapi["components"]["schemas"]
    parts = ["# HTTP service\n", openapi["info"]["description"] + "\n"]
    parts.append("`gramian serve` describes the same routes at `/docs`, and for programs at `/openapi.json`.\n")
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            shown = describe_operation(f"{method.upper()} {path}", operation, components)
            parts.append(f"## {shown['name']}\n\n{shown['description']}\n")
            if shown["fields"]:
                rows = [
                    f"| `{f['name']}` | {escape_cell(f['type'])} | {escape_cell(f['description'])} |" for f in shown["fields"]
                ]
                parts.append("\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n")
            if shown["example"]:
                parts.append(f"```json\n{shown['example']}\n```\n")
    return "\n".join(parts)


def example_page(path: Path) -> str:
    """Return the page of a notebook in percent format: its text, its code and the picture it ends with."""
    parts = []
    for cell in re.split(r"^# %%", path.read_text(), flags=re.MULTILINE)[1:]:
        head, _, body = cell.partition("\n")
        if "[markdown]" in head:
            parts.append("\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()) + "\n")
        else:
            parts.append(f"```python\n{body.strip()}\n```\n")
    picture = f"pictures/{path.stem}.svg"
    if (ROOT / "docs" / picture).exists():
        parts.append(f"![What the example draws](../{picture})\n")
    return "\n".join(parts) + f"\nThe file: `examples/{path.name}`, a notebook in percent format.\n"
