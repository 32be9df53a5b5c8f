"""The commands of README and docs/command_line.md run when they are pasted one after another into an empty folder."""

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from command_line import gramian
from service.helpers import wait_until

PAGES = [Path(__file__).parents[1].joinpath(name).read_text() for name in ("README.md", "docs/command_line.md")]
BLOCKS = [block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)]
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]


def test_every_command_is_one_that_this_file_runs():
    assert {words[0] for words in COMMANDS} == {"make", "gramian", "curl"}
    assert not any(character in word for words in COMMANDS for word in words for character in "$&|<>;`*")


def test_the_commands_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in COMMANDS:
        if words[0] == "gramian" and words[1] not in ("demo", "serve"):  # tests/cli/test_info.py runs the demo
            done = gramian(*words[1:], width=80)
            assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}"
            assert "Traceback" not in done.stderr
            assert not re.search(r"\d…|…\d", done.stdout), "no number is cut"
    run_service([words for words in COMMANDS if words[1] == "serve" or words[0] == "curl"])


def run_service(commands):
    """Start the service as the README does, at another port, and send its request."""
    (serve, curl), port = commands, free_port()
    words = [str(port) if word == "8000" else word for word in serve[1:]]
    with subprocess.Popen([sys.executable, "-m", "gramian", *words], stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(word for word in curl if word.startswith("localhost")).replace(":8000", f":{port}")
            body = curl[curl.index("-d") + 1]

            def answers():
                assert process.poll() is None, process.stderr.read()
                try:
                    return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(answers)
            answer = httpx.post(f"http://{address}", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text
            assert "Return of the Jedi" in answer.text
        finally:
            process.terminate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as line:
        return line.getsockname()[1]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "make"], ids=" ".join)
def test_make_has_the_targets(words):
    makefile = Path(__file__).parents[1].joinpath("Makefile").read_text()
    assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE)
