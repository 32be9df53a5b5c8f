"""The explorer page in a real browser, against the real server: it must show what the library says, and keep its manners."""

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Error, expect, sync_playwright

import gramian as gr
from gramian.app.benchmark import Benchmark
from gramian.app.experiment import find
from gramian.app.standings import Standings

expect.set_options(timeout=30_000)  # of a busy machine
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
RECIPES = {"ease": gr.EASE(l2=200), "edlae": gr.EDLAE(dropout=0.3, l2=200), "popularity": gr.Popularity()}
HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
TOY_STORY, STAR_WARS, EMPIRE, MATRIX = 1, 260, 1196, 2571


@pytest.fixture(scope="module")
def models():
    events = gr.datasets.load("movielens", min_value=4).k_core(10)
    named = dict(zip(events.items.tolist(), events.titles, strict=True)) | {TOY_STORY: HOSTILE}
    events = events.with_titles(named)
    return {name: recipe.fit(events) for name, recipe in RECIPES.items()}


@pytest.fixture(scope="module")
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
        "from gramian.app.cli import run; run()",
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
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright, closing(playwright.chromium.launch(executable_path=path, args=QUIET)) as found:
        yield found


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
        page.on("request", lambda asked: None if asked.url.startswith((server, "data:")) else wrong.append(asked.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.goto(f"{server}/#{fragment}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def titles(page, model):
    return page.locator(f"[data-model={model}] > ol > li > .title")


def pick(page, words, title):
    page.get_by_role("combobox").fill(words)
    page.get_by_role("option", name=title).click()


def expect_lists(page, models, history, names=("ease", "edlae"), **filters):
    """What the page shows is what the library says."""
    for name in names:
        found = models[name].recommend_for([history], k=10, **filters)
        expect(titles(page, name)).to_have_text(found.titles[0])


def number(words):
    return float(words.replace("−", "-"))


def test_picks_by_typing_change_all_columns(visit, models):
    page = visit()
    expect(page.get_by_text("Nothing picked yet: the most popular items")).to_have_count(2)
    expect_lists(page, models, [])
    pick(page, "star wars", "Episode IV")
    expect_lists(page, models, [STAR_WARS])
    pick(page, "matrix", "Matrix, The (1999)")
    expect_lists(page, models, [STAR_WARS, MATRIX])
    first = titles(page, "edlae").first.inner_text()
    page.locator("[data-model=edlae]").get_by_role("button", name=f"Add {first}").click()
    expect(page.get_by_label("Picked items")).to_contain_text(first)
    page.get_by_role("button", name="Clear").click()
    expect_lists(page, models, [])


def test_the_keyboard_suffices(visit, models):
    page = visit()
    query, press = page.get_by_role("combobox"), page.keyboard.press
    for _ in range(5):  # past the links and the button at the top
        press("Tab")
    expect(query).to_be_focused()
    page.keyboard.type("star wars: episode")
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    press("ArrowDown")
    second = page.get_by_role("option").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    expect(query).to_have_attribute("aria-activedescendant", second.get_attribute("id"))
    chosen = second.locator("span").first.inner_text()
    press("Enter")
    item = models["ease"].items[models["ease"].events.titles.index(chosen)]
    expect_lists(page, models, [item])
    page.keyboard.type("matrix")
    expect(page.get_by_role("listbox")).to_be_visible()
    press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    press("Tab")
    expect(page.get_by_role("button", name=f"Remove {chosen}")).to_be_focused()
    press("Enter")
    expect(query).to_be_focused()
    expect_lists(page, models, [])


def test_added_by_keyboard_the_focus_stays_in_the_list(visit, models):
    page = visit(f"items={STAR_WARS}")
    second = page.locator("[data-model=ease] .add").nth(1)
    second.press("Enter")
    expect(page.locator("#history .chip")).to_have_count(2)
    expect(second).to_be_focused()


@pytest.mark.parametrize("how", ["click", "keys", "hover"])
def test_the_parts_of_a_reason_add_up(visit, how):
    page = visit(f"items={STAR_WARS},{EMPIRE},{MATRIX},{TOY_STORY}&models=edlae,ease")
    row, panel = page.locator("[data-model=edlae] > ol > li").nth(2), page.get_by_role("group", name="Why")
    title = row.locator("button.title")
    {"click": title.click, "keys": lambda: title.press("Enter"), "hover": title.hover}[how]()
    expect(panel.locator("li")).to_have_count(4)
    values = [number(value) for value in panel.locator("li .value").all_inner_texts()]
    total = number(panel.locator(".sum .value").inner_text())
    assert total == number(row.locator("> .small").inner_text().split()[0])
    assert sum(values) == pytest.approx(total, abs=0.00005 * 5)
    assert values == sorted(values, key=abs, reverse=True)
    expect(title).to_have_attribute("aria-expanded", "true")
    page.get_by_role("combobox").hover()
    if how != "hover":  # it was asked for, so it stays
        expect(panel).to_be_visible()
        page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_a_model_that_cannot_explain_says_so(visit):
    page = visit(f"items={STAR_WARS}&models=popularity", refused=["/explain"])
    titles(page, "popularity").first.click()
    expect(page.get_by_role("group", name="Why")).to_contain_text("expected a model")
    page.mouse.click(5, 5)
    expect(page.get_by_role("group", name="Why")).to_have_count(0)


def test_a_copied_link_restores_everything(visit, models):
    shared = {"permissions": ["clipboard-read", "clipboard-write"]}
    page = visit(f"items={STAR_WARS}", **shared)
    pick(page, "matrix", "Matrix, The (1999)")
    page.get_by_role("checkbox", name="popularity").check()
    page.get_by_role("button", name="Comedy").click()
    expect(page.get_by_role("button", name="only Comedy")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert urlsplit(link).fragment == f"items={STAR_WARS},{MATRIX}&models=ease,edlae,popularity&only=Comedy"
    other = visit(urlsplit(link).fragment)
    expect(other.locator("#history .chip")).to_contain_text(["Star Wars: Episode IV", "Matrix, The (1999)"])
    expect(other.get_by_role("button", name="only Comedy")).to_be_visible()
    for name in ("ease", "edlae", "popularity"):
        expect(titles(other, name)).to_have_text(titles(page, name).all_inner_texts())


def test_strangers_titles_stay_text(visit):
    page = visit(f"similar={TOY_STORY}&items={TOY_STORY}")
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.locator("#history .chip")).to_contain_text([HOSTILE])
    page.locator("#history").get_by_role("button", name=f"Remove {HOSTILE}").click()
    page.get_by_role("combobox").fill("onerror")
    expect(page.get_by_role("option")).to_contain_text([HOSTILE])
    page.get_by_role("option").click()
    page.get_by_role("link", name="← Recommendations").click()
    titles(page, "ease").first.click()
    expect(page.get_by_role("group", name="Why")).to_contain_text(HOSTILE)
    assert page.locator("img, main b:not(.reason b):not(.tag b)").count() == 0


def test_tags_filter_by_three_states(visit, models):
    page = visit(f"items={STAR_WARS}")
    events = models["ease"].events
    comedies = [item for item, tags in zip(events.items.tolist(), events.tags, strict=True) if "Comedy" in tags]
    chip = page.locator("#filters").get_by_role("button", name="Comedy")
    expect(chip).to_have_accessible_name("any Comedy")
    chip.click()
    expect(chip).to_have_accessible_name("only Comedy")
    expect_lists(page, models, [STAR_WARS], allow=comedies)
    chip.press("Enter")
    expect(chip).to_have_accessible_name("never Comedy")
    expect(chip).to_be_focused()
    expect_lists(page, models, [STAR_WARS], deny=comedies)
    chip.press(" ")
    expect_lists(page, models, [STAR_WARS])
    page.get_by_role("button", name=re.compile(r"\d+ more")).click()
    expect(page.get_by_role("button", name="any Western")).to_be_visible()


def test_an_older_answer_never_overwrites_a_newer(visit, models):
    page, held = visit(), []
    expect_lists(page, models, [])
    page.route("**/recommend", lambda route: held.append(route) if len(held) < 2 else route.continue_())
    pick(page, "star wars", "Episode IV")
    expect(page.locator("#history .chip")).to_have_count(1)
    pick(page, "matrix", "Matrix, The (1999)")
    expect_lists(page, models, [STAR_WARS, MATRIX])
    for route in held:
        old = {"model": "ease", "items": [{"item": 1, "title": "old", "score": 1}], "unknown": [], "fallback": False}
        with suppress(Error):  # the page has hung up
            route.fulfill(json=old)
    page.evaluate("fetch('models').then(answer => answer.json())")
    expect_lists(page, models, [STAR_WARS, MATRIX])


def test_similar_items_side_by_side(visit, models):
    page = visit(f"items={STAR_WARS}")
    page.locator("[data-model=ease]").get_by_role("link", name="Similar to").first.click()
    item = int(re.search(r"similar=(\d+)", page.url)[1])
    for name in ("ease", "edlae"):
        expect(titles(page, name)).to_have_text(models[name].similar_items(item, k=10).titles[0])
    page.locator("[data-model=edlae] .add").filter(has_text="+").first.click()
    expect(page.locator("#history .chip")).to_have_count(2)
    expect(page.get_by_role("heading", name="Similar to")).to_be_visible()


def test_items_unknown_to_a_model_are_told(visit, models):
    page = visit(f"items={STAR_WARS},987654")
    expect(page.get_by_text("Does not know 987654")).to_have_count(2)
    expect_lists(page, models, [STAR_WARS])


def test_a_models_page_draws_its_charts(visit, models):
    page = visit(f"items={STAR_WARS}")
    page.get_by_role("link", name="edlae", exact=True).click()
    expect(page.get_by_role("heading", name="edlae")).to_be_visible()
    for fact in ("EDLAE(dropout=0.3, l2=200)", f"{models['edlae'].events.n_interactions:,}"):
        expect(page.locator("#page").get_by_text(fact)).to_be_visible()
    expect(page.get_by_role("img", name="Weights").locator("rect").first).to_be_visible()
    expect(page.get_by_role("img", name="Popularity").locator("path.line")).to_have_count(2)
    assert "NaN" not in page.locator("#page").inner_html()


def test_the_leaderboard_is_the_journal(visit, tmp_path):
    journal = tmp_path / "own.jsonl"
    Benchmark(journal).run(find("movielens").only([], ["Popularity"]))
    tables = Standings(journal).tables()
    page = visit()
    page.route("**/leaderboard", lambda route: route.fulfill(json={"tables": tables}))
    page.get_by_role("link", name="Leaderboard").click()
    expect(page.get_by_role("heading", name=tables[0]["title"])).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Popularity"))
    for figure in tables[0]["data"][0]["rows"][0]["figures"].values():
        expect(row).to_contain_text(f"{figure['ours']:.4f}")


def test_leaderboard_without_a_journal(visit):
    page = visit(refused=["/leaderboard"])
    page.get_by_role("link", name="Leaderboard").click()
    expect(page.locator("#page")).to_contain_text("expected a benchmark journal")
    expect(page.locator("#said")).to_contain_text("expected a benchmark journal")


def test_back_and_forward(visit, models):
    page = visit()
    pick(page, "star wars", "Episode IV")
    expect_lists(page, models, [STAR_WARS])
    page.get_by_role("link", name="ease", exact=True).click()
    expect(page.get_by_role("heading", name="ease")).to_be_visible()
    page.go_back()
    expect_lists(page, models, [STAR_WARS])
    page.go_back()
    expect_lists(page, models, [])
    page.go_forward()
    expect_lists(page, models, [STAR_WARS])


def test_one_model_stays_and_one_not_served_is_told(visit, models):
    page = visit("models=ease,nonsense")
    expect(page.get_by_role("checkbox", name="ease", exact=True)).to_be_disabled()
    expect(page.get_by_role("status").first).to_contain_text("This server has no model nonsense.")
    page.get_by_role("checkbox", name="popularity").check()
    expect_lists(page, models, [], names=["ease", "popularity"])


def test_a_server_that_went_away_is_asked_again(visit, models):
    page = visit(refused=["/recommend"])
    expect_lists(page, models, [])
    page.route("**/recommend", lambda route: route.abort())
    pick(page, "star wars", "Episode IV")
    expect(page.locator("#notice")).to_contain_text("The server does not answer.")
    page.unroute("**/recommend")
    page.get_by_role("button", name="Try again").click()
    expect_lists(page, models, [STAR_WARS])
    expect(page.locator("#notice")).to_be_empty()


def test_the_token_is_asked_for_once(visit, models):
    page, token = visit(refused=["/models", "/recommend"]), "correct horse"
    expect_lists(page, models, [])

    def guarded(route):
        known = route.request.headers.get("authorization") == f"Bearer {token}"
        route.continue_() if known else route.fulfill(status=401, json={"error": "Send a token."})

    page.route(re.compile("/(models|recommend)$"), guarded)
    page.reload()
    for given, words in (("wrong", "This server asks for a token."), (token, "That token was not accepted.")):
        expect(page.get_by_role("dialog")).to_contain_text(words)
        page.get_by_label("Token", exact=True).fill(given)
        page.keyboard.press("Enter")
    expect_lists(page, models, [])
    expect(page.get_by_role("dialog")).to_be_hidden()


VIEWS = ["", f"items={STAR_WARS},{TOY_STORY}&models=ease,edlae,popularity", f"similar={STAR_WARS}", "model=ease", "leaderboard"]


@pytest.mark.parametrize("fragment", VIEWS)
def test_a_phone_scrolls_only_down(visit, fragment):
    page = visit(fragment, refused=["/leaderboard"], viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    expect(page.locator("main:visible h1, main:visible h2").last).to_be_attached()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_on_a_phone_the_reason_is_a_sheet(visit):
    page = visit(f"items={STAR_WARS},{EMPIRE}", viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    titles(page, "ease").first.tap()
    panel = page.get_by_role("group", name="Why")
    expect(panel.locator("li")).to_have_count(2)
    box = panel.bounding_box()
    assert (box["x"], box["width"], box["y"] + box["height"]) == (0, 360, 740)
    panel.get_by_role("button", name="Close").tap()
    expect(panel).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme(visit, scheme):
    page = visit(color_scheme=scheme)
    back, ink = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (back, ink)]
    assert (light[0] < 64 and light[1] > 192) if scheme == "dark" else (light[0] > 192 and light[1] < 64)
