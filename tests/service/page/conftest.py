"""A real server with four models, and a real browser that visits its page."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

import gramian as gr
from service.page.support import BEAUTY, HOSTILE, LAMBS, RECIPES, SHARED_TITLE, TOY_STORY

expect.set_options(timeout=30_000)  # of a busy machine
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def models():
    """Three models of all users, and one of half of them."""
    events = gr.datasets.load("movielens", min_value=4).k_core(10)
    titles = dict(zip(events.items.tolist(), events.titles, strict=True))
    events = events.with_titles(titles | {TOY_STORY: HOSTILE, LAMBS: SHARED_TITLE, BEAUTY: SHARED_TITLE})
    fitted = {name: recipe.fit(events) for name, recipe in RECIPES.items()}
    return fitted | {"half": gr.Popularity().fit(events.take(np.arange(events.n_users // 2)))}


@pytest.fixture(scope="session")
def user(models):
    """A user whom the model of half of the users does not know, with more items than an explanation shows one by one."""
    events = models["ease"].histories
    lengths = np.diff(events.matrix.indptr)
    return events.users[np.flatnonzero((lengths > 25) & (np.arange(events.n_users) >= events.n_users // 2))[:1]][0]


@pytest.fixture(scope="session")
def server(models, tmp_path_factory):
    """The address of `gramian serve` with the models."""
    folder = tmp_path_factory.mktemp("served")
    for name, model in models.items():
        model.save(folder / name)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-c",
        "from gramian.cli.main import run; run()",
        "serve",
        *(str(folder / name) for name in models),
    ]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen([*command, "--port", str(port), "--quiet"], stdout=log, stderr=log)
        try:
            while not is_ready(port):
                with suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"the server ended with {process.wait(0.1)}: {(folder / 'log').read_text()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def is_ready(port):
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as asking, suppress(ConnectionError):
        asking.request("GET", "/ready")
        return asking.getresponse().status == 200
    return False


@pytest.fixture(scope="module")
def browser():
    """Chromium. Not for the session: Playwright keeps an event loop, and other tests run their own."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright, closing(playwright.chromium.launch(executable_path=path, args=QUIET)) as chromium:
        yield chromium


@pytest.fixture
def visit(browser, server):
    """Opens the page at a fragment. Errors in the console, dialogs and requests to other hosts fail the test."""
    contexts, wrong = [], []

    def opened(fragment="", *, refused=(), **options):
        """`refused` are the paths of which the server's refusals are part of the test."""
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()

        def heard(message):
            if message.type in ("error", "warning") and urlsplit(message.location["url"]).path not in refused:
                wrong.append(message.text)

        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith((server, "data:")) else wrong.append(request.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.goto(f"{server}/#{fragment}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
