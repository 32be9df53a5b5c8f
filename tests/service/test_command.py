"""`gramian serve` as a command."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import gramian as gr
from gramian.cli.main import run
from service.helpers import ADMIN_TOKEN, READ_TOKEN, TIMEOUT, expect_ok, wait_until


def command(*words, **environment):
    line = [sys.executable, "-c", "from gramian.cli.main import run; run()", "serve", *map(str, words)]
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def test_the_command_serves_until_it_is_interrupted(folders, tmp_path):
    (tmp_path / "token").write_text(f"{READ_TOKEN}\n")
    words = [folders[-1], "--port", 0, "--read-token", tmp_path / "token"]
    with command(*words, GRAMIAN_ADMIN_TOKEN=ADMIN_TOKEN) as process:
        first_line = process.stderr.readline()
        assert "Serving popularity at http://127.0.0.1:" in first_line
        base = first_line.split()[-1]
        assert httpx.get(f"{base}/health").status_code == 200  # it listens when it says so
        wait_until(lambda: httpx.get(f"{base}/ready").status_code == 200)
        assert httpx.get(f"{base}/models").status_code == 401
        response = httpx.get(f"{base}/models", headers={"authorization": f"Bearer {READ_TOKEN}"})
        assert [row["name"] for row in expect_ok(response)["models"]] == ["popularity"]
        assert "server" not in response.headers
        assert httpx.post(f"{base}/reload", headers={"authorization": f"Bearer {ADMIN_TOKEN}"}).status_code == 200
        assert httpx.get(f"{base}/health", headers={"host": "evil.example"}).status_code == 400
        process.send_signal(signal.SIGINT)
        _, printed_text = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (0, -signal.SIGINT, 130)
    assert "GET /models 200" in printed_text
    assert READ_TOKEN not in printed_text
    assert ADMIN_TOKEN not in printed_text
    assert "Traceback" not in printed_text


WRONG = {
    "no folder": (["missing"], {}, "nothing there"),
    "twice": (["popularity", "popularity"], {}, "two folders named popularity"),
    "short token": (["popularity"], {"GRAMIAN_READ_TOKEN": "short"}, "a token of at least 16"),
    "no token file": (["popularity", "--read-token", "missing"], {}, "a token in missing"),
    "no journal": (["popularity", "--journal", "missing.jsonl"], {}, "a benchmark's journal at missing.jsonl"),
}


@pytest.mark.parametrize(("words", "environment", "printed_text"), WRONG.values(), ids=WRONG)
def test_wrong_commands_are_told_so(words, environment, printed_text, folders, monkeypatch, capsys):
    monkeypatch.chdir(folders[0].parent)
    monkeypatch.setattr(sys, "argv", ["gramian", "serve", *words])
    monkeypatch.setenv("COLUMNS", "140")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stop:
        run()
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out) == (2, "")
    assert printed_text in printed.err


def test_a_port_that_is_taken_is_told_so(folders):
    with socket.create_server(("127.0.0.1", 0)) as line, command(folders[-1], "--port", line.getsockname()[1]) as process:
        _, printed_text = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert "Traceback" not in printed_text
    assert "Choose another with --port" in printed_text


def test_no_file_but_the_page_is_sent():
    page = Path(gr.__file__).parent / "service" / "page"
    assert {path.suffix for path in page.iterdir()} <= {".html", ".js", ".css", ".svg"}


COUNT_KERNELS = """
import sys, time
from fastapi.testclient import TestClient
from numba.core.registry import CPUDispatcher
from gramian.service.app import create_app
from gramian.service.served_model import ServedModel

ServedModel.warm_up_reranking = lambda served: None  # what few requests need is loaded later

def count_kernels():
    modules = [module for name, module in sys.modules.items() if name.startswith("gramian")]
    kernels = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)}
    return sum(len(kernel.signatures) for kernel in kernels.values())

folders = sys.argv[1:]
with TestClient(create_app(folders), base_url="http://127.0.0.1") as client:
    while client.get("/ready").status_code != 200:
        time.sleep(0.05)
    n_kernels = count_kernels()
    for model in client.get("/models").json()["models"]:
        name = {"model": model["name"]}
        for options in ({}, {"user": 1}, {"exclude_seen": False}, {"allow_tags": ["Comedy"]}, {"deny": [1], "k": 500}):
            client.post("/recommend", json={**name, "history": [260, {"item": 1196, "weight": 2}], **options})
        client.post("/recommend/batch", json={**name, "users": list(range(100)), "histories": [[260, 1196]] * 100})
        client.get("/similar", params={**name, "item": 260})
        client.post("/explain", json={**name, "history": [260], "item": 1196})
    assert count_kernels() == n_kernels, (n_kernels, count_kernels())
"""


def test_no_kernel_is_loaded_after_the_service_is_ready(folders):
    line = [sys.executable, "-W", "ignore", "-c", COUNT_KERNELS, *map(str, folders)]
    process = subprocess.run(line, capture_output=True, text=True, timeout=5 * TIMEOUT, check=False)
    assert process.returncode == 0, process.stderr
