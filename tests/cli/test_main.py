"""What all commands share: help, errors, exit codes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gramian as gr
from command_line import gramian, ok
from gramian.cli.advice import format_error, option_flags, translate
from gramian.cli.main import build_app
from gramian.cli.render import program_name
from gramian.core.params import format_value
from gramian.validation import format_install_advice

COMMANDS = [
    "demo",
    "describe",
    "auto",
    "models",
    "fit",
    "recommend",
    "similar",
    "explain",
    "missing",
    "factors",
    "evaluate",
    "tune",
    "ranks",
    "epochs",
]
COMMANDS += ["benchmark", "report", "serve", "mcp", "verify", "datasets", "warm-up"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    assert f"gramian {command}" in ok(command, "--help").split("Example:")[1]


def test_commands_are_documented():
    assert [command.name for command in build_app().registered_commands] == COMMANDS
    root = Path(__file__).parents[2]
    guides = "".join((root / page).read_text() for page in ("README.md", "docs/command_line.md"))
    assert [command for command in COMMANDS if f"gramian {command}" not in guides] == []


def test_a_flag_shows_the_text_and_default_of_every_model_that_has_it():
    shown = " ".join(re.sub(r"[│•]", " ", ok("fit", "--help")).split())
    texts = {}
    for name, recipe in gr.MODELS.items():
        for field in recipe.param_fields():
            about = field.metadata["about"]
            text = f"{about[:1].upper()}{about[1:]}. Default {format_value(field.default)}"
            texts.setdefault((field.name, text), []).append(name)
    assert len({text for name, text in texts if name == "l2"}) > 3
    for (name, text), models in texts.items():
        if name != "weight":  # the option of that name says how events are weighted; a blend's weight goes into its spec
            assert f"{text}: {', '.join(models)}." in shown


def test_without_a_command_there_is_help_and_a_version():
    assert "demo" in ok()
    assert ok("--version").strip() == gr.__version__


BAD = {
    "parameter of none of the models": (
        ["evaluate", "{csv}", "--model", "ease", "--model", "edlae", "--alpha", "0.3"],
        "--alpha",
    ),
    "ignored column": (["fit", "movielens", "--user", "who"], "--user"),
    "column it does not have": (["fit", "movielens", "--min-value", "stars=4"], "'rating'"),
    "ignored with published": (["evaluate", "gowalla", "--split", "published", "--k-core", "5"], "--k-core"),
    "dtype": (["fit", "{csv}", "--dtype", "foo"], "float64"),
    "no such file": (["fit", "nowhere.csv"], "nowhere.csv"),
    "no such model": (["fit", "movielens", "--model", "magic"], "'magic'"),
    "no such option": (["fit", "movielens", "--bogus"], "--bogus"),
    "no argument": (["fit"], "data"),
    "no command": (["explode"], "explode"),
    "not a number": (["fit", "movielens", "--l2", "many"], "--l2"),
    "parameter of two models": (
        ["evaluate", "{csv}", "--model", "ease", "--model", "ials", "--l2", "0.01"],
        '--l2 with one model that has it; got EASE and IALS. Write it into each model, as in --model "ease(l2=0.01)"',
    ),
    "parameter of two default models": (["evaluate", "{csv}", "--l2", "30"], "EASE and EDLAE"),
    "parameter in spec and flag": (["fit", "{csv}", "--model", "ease(l2=3)", "--l2", "4"], "got l2=3 and --l2 4"),
    "unknown parameter in a spec": (["fit", "{csv}", "--model", "edlae(l1=3)"], "parameters of EDLAE (dropout, l2); got 'l1'"),
    "bad value in a spec": (["fit", "{csv}", "--model", "edlae(dropout=2)"], "dropout of EDLAE to be a number"),
    "no spec": (["fit", "{csv}", "--model", "edlae(0.3"], "edlae(dropout=0.3, l2=200)"),
    "no such model to explain": (["models", "magic"], "'magic'"),
    "unknown parameter of a benchmark": (["benchmark", "--data", "{csv}", "--models", "ease(l1=3)"], "parameters of EASE (l2)"),
    "no such column of items": (["fit", "{csv}", "--titles", "{csv}", "--title", "name"], "a column named 'name'"),
    "no such table of items": (["fit", "{csv}", "--titles", "nowhere.csv"], "nowhere.csv"),
    "negative l2": (["fit", "movielens", "--model", "ease", "--l2", "-1"], "l2 of EASE"),
    "dropout 1": (["fit", "movielens", "--dropout", "1"], "dropout of EDLAE"),
    "parameter of another model": (["fit", "movielens", "--model", "ease", "--dropout", "0.2"], "--dropout"),
    "threshold without a column": (["fit", "{csv}", "--min-value", "4"], "rating=4"),
    "missing column": (["fit", "{csv}", "--user", "who"], "'who'"),
    "no such model folder": (["recommend", "nowhere", "--history", "1"], "nowhere"),
    "no such threads": (["fit", "{csv}", "--model", "ease", "--threads", "0"], "expected --threads from 1 to"),
    "scratch for nothing": (["fit", "{csv}", "--model", "popularity", "--scratch", "s"], "Leave --scratch out"),
    "two ways at once": (["recommend", "{model}", "--history", "260", "--user", "15"], "--user alone; got --history with it"),
    "no such format": (["recommend", "{model}", "--out", "x.xlsx"], ".parquet or .csv or .jsonl"),
    "no self in a history": (["recommend", "{model}", "--history", "1", "--exclude-self"], "no --exclude-self with --history"),
    "no such file of items": (["recommend", "{model}", "--user", "15", "--deny-file", "no.txt"], "no.txt No such file"),
    "a range without trials": (["tune", "{csv}", "--space", "l2=1:10"], "Pass a list, or --trials 30 to search a range"),
    "no model of ranks": (["ranks", "{csv}", "--model", "ease"], "Pass --model LowRankEDLAE, say"),
    "a core of nobody": (["fit", "{csv}", "--k-core", "-1"], "Pass --k-core 5, say"),
    "nowhere to write": (["recommend", "{model}", "--out", "no/such/x.parquet"], "in an existing folder"),
    "nothing asked": (["recommend", "{model}"], "--user, --history, --histories or --out"),
    "unknown user": (["recommend", "{model}", "--user", "nobody"], "'nobody'. Pass their items with --history"),
    "unknown item": (["similar", "{model}", "star wars"], "Star Wars: Episode IV"),
    "k of 0": (["recommend", "{model}", "--history", "260", "-k", "0"], "k of at least 1; got 0. Pass -k 10."),
    "unknown split": (["evaluate", "{csv}", "--split", "sideways"], "sideways"),
    "unknown metric": (["evaluate", "{csv}", "--metric", "magic@3"], "'magic'"),
    "no times": (["evaluate", "{csv}", "--split", "temporal"], "times"),
    "data set not here": (["fit", "gowalla"], "LightGCN"),
    "not split by its publisher": (["evaluate", "movielens", "--split", "published"], "published as train and test"),
    "out is a file": (["fit", "{csv}", "--model", "popularity", "--out", "{csv}"], "something else"),
}


@pytest.mark.parametrize(("words", "expected"), BAD.values(), ids=BAD)
def test_an_error_is_one_line_and_exit_code_2(words, expected, csv, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = gramian(*(word.format(csv=csv, model=model) for word in words))
    assert done.returncode == 2
    assert done.stdout == ""
    *summary, error = done.stderr.splitlines()
    assert all(line.startswith("read ") for line in summary)  # an error after reading
    assert error.startswith("gramian: ")
    assert expected in error
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_the_words_of_the_library_become_flags():
    flags = {"k": "-k", "n_threads": "--threads", "min_value": "--min-value", "device": "--device", "value": "--value"}
    for text, expected in {
        "Pass k=10": "Pass -k 10",
        "Pass device='auto'": "Pass --device auto",
        "n_threads from 1 to 8": "--threads from 1 to 8",
        "Check the column names and min_value": "Check the column names and --min-value",
        "a column named 'min_value'": "a column named 'min_value'",
        "Write it as in edlae(k=0.3, value=200)": "Write it as in edlae(k=0.3, value=200)",
        "Pass alpha=3": "Pass alpha=3",
        "a value above 0": "a value above 0",
        "Keep fewer items (events.k_core, --k-core)": "Keep fewer items (--k-core)",
    }.items():
        assert translate(text, flags) == expected
    flags_of_fit = option_flags(build_app(), ["gramian", "fit", "x.csv"])
    assert (flags_of_fit["n_threads"], flags_of_fit["min_value"], flags_of_fit["l2"]) == ("--threads", "--min-value", "--l2")
    assert option_flags(build_app(), ["gramian"]) == {}


def test_what_the_user_typed_is_not_translated():
    error = gr.errors.InvalidInput("a column", "k=3 in 'min_value'", "Pass k=10")
    assert format_error(error, {"k": "-k", "min_value": "--min-value"}) == (
        "expected a column; got k=3 in 'min_value'. Pass -k 10."
    )


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "gramian", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == gr.__version__


def test_the_shell_completes_commands_options_and_models(monkeypatch):
    def complete(*words):
        monkeypatch.setenv("_GRAMIAN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["gramian", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return gramian().stdout.split()

    assert complete("re") == ["recommend", "report"]
    assert {"--history", "--histories"} <= set(complete("recommend", "m", "--hi"))
    assert complete("fit", "movielens", "--model", "lowr") == ["lowrankdlae", "lowrankedlae"]
    assert complete("evaluate", "movielens", "--split", "leave") == ["leave-last"]


def test_what_to_install_can_be_pasted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert format_install_advice("serve") == "Run `python -m pip install 'gramian[serve]'`"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert format_install_advice("serve") == f"Run `{sys.executable} -m pip install 'gramian[serve]'`"


def test_the_program_is_named_as_it_was_called(monkeypatch, tmp_path):
    script = tmp_path / "gramian"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert program_name() == str(script)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name() == "gramian"
    monkeypatch.setattr(sys, "argv", ["/somewhere/gramian/__main__.py"])
    assert program_name() == "python -m gramian"


def test_the_installed_command_answers_and_fails_like_the_function(csv, tmp_path):
    command = str(Path(sys.executable).with_name("gramian"))
    good = subprocess.run([command, "datasets", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(good.stdout)["datasets"]
    bad = subprocess.run([command, "fit", csv, "--user", "who"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert "Traceback" not in bad.stderr
