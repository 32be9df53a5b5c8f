"""Translate error messages for the command line: the library names Python arguments and methods, a terminal user types flags.

An argument such as `k=10` becomes the flag of the command that was run, `-k 10`. A method, for which there is no flag, has a
phrase of its own below. Only what the library itself wrote is translated, never what the user typed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import typer

from gramian.errors import GramianError

PHRASES = {  # of the library, as regular expressions → of the command line
    r"Use recommend_for with their histories": "Pass their items with --history or --histories",
    r"Use recommend_for with histories, or gr\.spark\.recommend on a cluster": "Pass items with --history or --histories",
    r"Use gr\.spark\.recommend, or recommend_for with histories": "Recommend with --history or --histories",
    r"Fit it on one machine: recipe\.fit\(events\.local\(\)\)": "Leave --engine out",
    r"Lower validation_users and test_users": "Use more data, or another --split",
    r"weights=\{'view': 0\.2, 'buy': 1\}": "--weights view=0.2,buy=1",
    r"kinds=\['view', 'buy'\]": "--kinds view,buy",
    r"kinds=\['view', 'cart', 'buy'\]": "--kinds view,cart,buy",
    r"Add them up with events\.with_kind_weights.* or fit": "Add them up with --weights, or fit",
    r"Drop them with events\.keep\(events\.matrix\.data > 0\)": "Leave --max-dislike and --signed out",
    r"events\.k_core, --k-core": "--k-core",
    r"\b(?:events\.)?k_core(?:\((\d+)\))?": r"--k-core \1",
    r"\bgr\.([A-Z]\w*)\(\)": r"--model \1",
    r"\bLeave scratch out": "Leave --scratch out",
    r"\bLeave min_value and weights out": "Leave --min-value and --value out",
    r"\bSee model\.items": "Pass an item of the data that the model was fitted on",
}
CALL = r"\w[\w.]*\((?:[^()]|\([^()]*\))*\)"
VALUE = r"""\([^()]*\)|"[^"]*"|'[^']*'|\.\.\.|[^\s,;:()'"]*[^\s,;:()'".]"""
UNTRANSLATED = rf"{CALL}|'[^']*'|\"[^\"]*\""  # specs such as edlae(l2=200), and quotations
ARGUMENT = re.compile(rf"{UNTRANSLATED}|(?<![\w.-])(?P<name>[a-z]\w*)(?:=(?P<value>{VALUE}))?")


def option_flags(app: typer.Typer, words: Sequence[str]) -> dict[str, str]:
    """Return the flags of the command in these words by the names of their arguments, as in {"n_threads": "--threads"}."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    command = next((commands[word] for word in words[1:] if word in commands), None)
    return {} if command is None else {option.name: option.opts[0] for option in command.params if option.opts[0][:1] == "-"}


def format_error(error: GramianError, flags: Mapping[str, str]) -> str:
    """Return the message of an error in the words of the command line."""
    return f"expected {translate(error.expected, flags)}; got {error.got}. {translate(error.do, flags)}."


def translate(text: str, flags: Mapping[str, str]) -> str:
    """Return a text of the library with flags in place of Python arguments."""
    for phrase, words in PHRASES.items():
        text = re.sub(phrase, words, text)

    def use_flag(match: re.Match[str]) -> str:
        name, value = match["name"] or "", match["value"]
        if name not in flags or (value is None and "_" not in name):  # a plain word, such as "value", is no argument
            return match[0]
        if value is None or value == "True":
            return flags[name]
        words = [word.strip(" ()'\"") for word in value.split(",")] if value.startswith("(") else [value.strip("'\"")]
        return f"{flags[name]} {shlex.quote('='.join(words))}"  # ("rating", 4) is typed as rating=4

    return ARGUMENT.sub(use_flag, text)
