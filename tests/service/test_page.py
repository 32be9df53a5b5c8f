"""The explorer page, against the real server, and the HTML report in a real browser: they must show what the library says.

Wait for what must be visible before pressing keys or moving the mouse: on a busy machine, views and titles arrive late.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import Error, expect, sync_playwright

import gramian as gr
from gramian.experiments import runner
from gramian.experiments.experiment import find_experiment
from gramian.experiments.report import write_report
from gramian.experiments.runner import Benchmark
from gramian.service.leaderboard import Leaderboard
from small_experiments import EASE, EDLAE, POPULARITY, table

expect.set_options(timeout=30_000)  # of a busy machine
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
RECIPES = {"ease": gr.EASE(l2=200), "edlae": gr.EDLAE(dropout=0.3, l2=200), "popularity": gr.Popularity()}
HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
SHARED_TITLE = "Twice <u>told</u>"
TOY_STORY, STAR_WARS, EMPIRE, MATRIX, LAMBS, BEAUTY = 1, 260, 1196, 2571, 593, 2858
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def models():
    """Three models of all users, and one of half of them."""
    events = gr.datasets.load("movielens", min_value=4).k_core(10)
    titles = dict(zip(events.items.tolist(), events.titles, strict=True))
    events = events.with_titles(titles | {TOY_STORY: HOSTILE, LAMBS: SHARED_TITLE, BEAUTY: SHARED_TITLE})
    fitted = {name: recipe.fit(events) for name, recipe in RECIPES.items()}
    return fitted | {"half": gr.Popularity().fit(events.take(np.arange(events.n_users // 2)))}


@pytest.fixture(scope="module")
def user(models):
    """A user whom the model of half of the users does not know, with more items than an explanation shows one by one."""
    events = models["ease"].histories
    lengths = np.diff(events.matrix.indptr)
    return events.users[np.flatnonzero((lengths > 25) & (np.arange(events.n_users) >= events.n_users // 2))[:1]][0]


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


def titles(page, model):
    return page.locator(f"[data-model={model}] > ol > li > .title")


def pick(page, words, title):
    page.get_by_role("combobox").fill(words)
    page.get_by_role("option", name=title).click()


def expect_lists(page, models, history, names=("ease", "edlae"), **filters):
    """What the page shows is what the library says."""
    for name in names:
        expect_list(page, name, models[name].recommend_for([history], k=10, **filters))


def expect_list(page, name, ranked):
    shared = {LAMBS, BEAUTY}
    rows = zip(ranked.items[0], ranked.titles[0], strict=True)
    expect(titles(page, name)).to_have_text([f"{title} · id {item}" if item in shared else title for item, title in rows])


def expect_titles_loaded(page, n_chips):
    """Wait until the chips of a link have titles instead of ids: they grow, and everything below them moves."""
    expect(page.locator("#history .chip")).to_have_text([re.compile("[a-z]{3}")] * n_chips)


def number(words):
    return float(words.replace("−", "-"))


def test_picks_by_typing_change_all_columns(visit, models):
    page = visit()
    expect(page.get_by_text("The history is empty: these are the most popular items")).to_have_count(2)
    expect_lists(page, models, [])
    pick(page, "star wars", "Episode IV")
    expect_lists(page, models, [STAR_WARS])
    pick(page, "matrix", "Matrix, The (1999)")
    expect_lists(page, models, [STAR_WARS, MATRIX])
    first = titles(page, "edlae").first.inner_text()
    page.locator("[data-model=edlae]").get_by_role("button", name=f"Add {first}").click()
    expect(page.get_by_label("History", exact=True)).to_contain_text(first)
    page.get_by_role("button", name="Clear").click()
    expect_lists(page, models, [])


def test_the_keyboard_suffices(visit, models):
    page = visit()
    query, press = page.get_by_role("combobox"), page.keyboard.press
    expect(query).to_be_visible()  # the view is hidden until the models are known
    for _ in range(5):  # past the links and the button at the top
        press("Tab")
    expect(query).to_be_focused()
    page.keyboard.type("star wars: episode")
    expect(page.get_by_role("listbox")).to_have_attribute("aria-busy", "false")  # the suggestions are those of all of the text
    expect(page.get_by_role("option").first).to_have_attribute("aria-selected", "true")
    press("ArrowDown")
    second = page.get_by_role("option").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    expect(query).to_have_attribute("aria-activedescendant", second.get_attribute("id"))
    chosen = second.locator("span").first.inner_text()
    press("Enter")
    item = models["ease"].items[models["ease"].histories.titles.index(chosen)]
    expect_lists(page, models, [item])
    page.keyboard.type("matrix")
    expect(page.get_by_role("listbox")).to_be_visible()
    press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    press("Tab")
    expect(page.get_by_label("Or enter a user id")).to_be_focused()
    press("Tab")
    expect(page.get_by_role("button", name="Show")).to_be_focused()
    press("Tab")
    expect(page.get_by_role("button", name=f"Remove {chosen}")).to_be_focused()
    press("Enter")
    expect(query).to_be_focused()
    expect_lists(page, models, [])


def test_added_by_keyboard_the_focus_stays_in_the_list(visit, models):
    page = visit(f"items={STAR_WARS}")
    second = page.locator("[data-model=ease] .add").nth(1)
    expect_titles_loaded(page, 1)
    expect_lists(page, models, [STAR_WARS])
    second.press("Enter")
    expect(page.locator("#history .chip")).to_have_count(2)
    expect(second).to_be_focused()


@pytest.mark.parametrize("how", ["click", "keys", "hover"])
def test_the_parts_of_a_reason_add_up(visit, how):
    page = visit(f"items={STAR_WARS},{EMPIRE},{MATRIX},{TOY_STORY}&models=edlae,ease")
    row, panel = page.locator("[data-model=edlae] > ol > li").nth(2), page.get_by_role("group", name="Why")
    title = row.locator("button.title")
    expect_titles_loaded(page, 4)
    {"click": title.click, "keys": lambda: title.press("Enter"), "hover": title.hover}[how]()
    expect(panel.locator("li")).to_have_count(4)
    values = [number(value) for value in panel.locator("li .value").all_inner_texts()]
    total = number(panel.locator(".sum .value").inner_text())
    assert row.locator("> .small").inner_text().startswith(f"score {panel.locator('.sum .value').inner_text()} ")
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
    expect(titles(page, "popularity")).to_have_count(10)
    page.get_by_role("button", name="Comedy").click()
    expect(page.get_by_role("button", name="only Comedy")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#announcement")).to_have_text("Copied")  # unlike the text of the button, it stays
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
    page.locator("[data-model=ease] button.title").first.click()  # the rows of similar items have no buttons
    expect(page.get_by_role("group", name="Why")).to_contain_text(HOSTILE)
    expect_no_markup(page)


def expect_no_markup(page):
    """No element of a hostile title is in the page."""
    assert page.locator("img, u, main b:not(.explanation b):not(.tag b)").count() == 0


def test_items_that_share_a_title_are_shown_with_their_ids(visit, models):
    page = visit(f"items={STAR_WARS}&models=ease")
    expect_lists(page, models, [STAR_WARS], names=["ease"])
    page.get_by_role("combobox").fill("twice")
    names = [f"{SHARED_TITLE} · id {item}" for item in (BEAUTY, LAMBS)]
    expect(page.get_by_role("option")).to_contain_text(sorted(names, key=lambda name: -popularity(models, name)))
    page.get_by_role("option", name=names[0]).click()
    expect(page.locator("#history .chip").last).to_contain_text(names[0])
    expect(page.get_by_role("button", name=f"Remove {names[0]}")).to_be_visible()
    expect_lists(page, models, [STAR_WARS, BEAUTY], names=["ease"])
    page.locator("[data-model=ease] button.title").first.click()
    expect(page.get_by_role("group", name="Why").locator("li")).to_contain_text([names[0]])
    restored = visit(f"similar={LAMBS}&items={BEAUTY}&models=ease")
    expect(restored.get_by_role("heading", name=f"Similar to {names[1]}")).to_be_visible()
    expect(restored.locator("#history .chip")).to_contain_text([names[0]])
    expect_no_markup(page)


def popularity(models, name):
    catalog = models["ease"].catalog
    return catalog.popularity[catalog.column(int(name.split()[-1]))]


def test_a_user_id_brings_the_history_and_the_lists_of_the_user(visit, models, user):
    page = visit()
    box = page.get_by_label("Or enter a user id")
    box.fill(f" {user} ")
    box.press("Enter")
    n_items = len(models["ease"].history(user))
    expect(page.locator("#history .chip").first).to_contain_text(f"User {user}: {n_items} items")
    for name in ("ease", "edlae"):
        expect_list(page, name, models[name].recommend([user], k=10))
    page.get_by_role("button", name=f"{n_items - 10} more").click()
    known = models["ease"].catalog
    shown = [
        f"{title} · id\N{NO-BREAK SPACE}{item}" if title == SHARED_TITLE else title
        for item in models["ease"].history(user)
        for title in known.titles_of([known.column(item)])
    ]
    assert sorted(page.locator("#history .of-user").all_inner_texts()) == sorted(shown)
    page.get_by_role("button", name="fewer").click()
    expect(page.locator("#history .of-user")).to_have_count(10)
    titles(page, "ease").first.click()
    panel = page.get_by_role("group", name="Why")
    expect(panel.locator("li").last).to_contain_text(f"{n_items - 20} other items, added up")
    values = [number(value) for value in panel.locator("li .value").all_inner_texts()]
    assert sum(values) == pytest.approx(number(panel.locator(".sum .value").inner_text()), abs=0.00005 * 22)
    page.keyboard.press("Escape")
    titles(page, "ease").first.locator("xpath=..").get_by_role("button", name="Add").click()
    added = models["ease"].recommend([user], k=1).items[0][0]
    expect_lists(page, models, models["ease"].history(user) | {added: 1.0})
    assert urlsplit(page.url).fragment == f"user={user}&items={added}"
    restored = visit(urlsplit(page.url).fragment)
    expect_lists(restored, models, models["ease"].history(user) | {added: 1.0})
    expect(restored.locator("#history .chip")).to_have_count(12)
    expect(restored.get_by_label("Or enter a user id")).to_have_value(str(user))
    restored.get_by_role("button", name=f"Remove user {user}").press("Enter")
    expect_lists(restored, models, [added])
    expect(restored.get_by_role("combobox")).to_be_focused()
    expect(restored.get_by_label("Or enter a user id")).to_have_value("")


def test_an_unknown_user_is_named(visit, models, user):
    nobody = "nobody <u>at all</u>"
    page = visit(f"items={STAR_WARS}", refused=["/history", "/recommend"])
    expect_lists(page, models, [STAR_WARS])
    box = page.get_by_label("Or enter a user id")
    box.fill(nobody)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#user-message")).to_have_text(f"None of the chosen models knows user {nobody}.")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text(f"Does not know user {nobody}")).to_have_count(2)
    expect_lists(page, models, [STAR_WARS])
    expect_no_markup(page)
    box.fill(str(user))
    box.press("Enter")
    expect(page.locator("#history .of-user")).to_have_count(10)
    expect(box).to_have_attribute("aria-invalid", "false")
    expect_lists(page, models, models["ease"].history(user) | {STAR_WARS: 1.0})


def test_a_user_whom_only_some_models_know(visit, models, user):
    page = visit(f"user={user}&models=half,popularity", refused=["/history", "/recommend"])
    expect_list(page, "popularity", models["popularity"].recommend([user], k=10))
    expect_list(page, "half", models["half"].recommend_for([[]], k=10))
    expect(page.locator("[data-model=half]")).to_contain_text(f"Does not know user {user}")
    expect(page.locator("[data-model=popularity] .note")).to_be_empty()
    expect(page.locator("#history .of-user")).to_have_count(10)


def test_numbers_have_names(visit, models):
    page = visit("models=ease")
    popularity = models["ease"].recommend_for([[]], k=1).scores[0][0]
    row = page.locator("[data-model=ease] > ol > li").first
    expect(row).to_contain_text(f"{popularity:.0f} users")
    events = models["ease"].histories
    sizes = f"{events.n_users:,} users, {events.n_items:,} items, {events.n_interactions:,} interactions"
    expect(page.locator("[data-model=ease]")).to_contain_text(sizes)
    similar = visit(f"similar={STAR_WARS}&models=ease")
    expect(similar.locator("[data-model=ease] > ol > li").first).to_contain_text("similarity 0.")
    expect(similar.locator("#scale")).to_contain_text("Similarities of different models cannot be compared")


def test_tags_filter_by_three_states(visit, models):
    page = visit(f"items={STAR_WARS}")
    events = models["ease"].histories
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
    expect_lists(page, models, [STAR_WARS])
    page.locator("[data-model=ease]").get_by_role("link", name="similar items").first.click()
    item = models["ease"].recommend_for([[STAR_WARS]], k=1).items[0][0]
    page.wait_for_url(f"**similar={item}*")
    for name in ("ease", "edlae"):
        expect_list(page, name, models[name].similar_items(item, k=10))
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
    for fact in ("EDLAE(dropout=0.3, l2=200)", f"{models['edlae'].histories.n_interactions:,}"):
        expect(page.locator("#page").get_by_text(fact)).to_be_visible()
    weights, curves = page.get_by_role("img", name="Weights"), page.get_by_role("img", name="Popularity")
    expect(weights.locator("rect").first).to_be_visible()
    expect(curves.locator("path.line")).to_have_count(2)
    for chart, names in ((weights, ["weight of one item for another", "weights (log scale)"]), (curves, ["cumulative share"])):
        for name in names:
            expect(chart.get_by_text(name, exact=True)).to_be_attached()
    assert "NaN" not in page.locator("#page").inner_html()


def test_a_models_page_shows_measured_metrics_with_their_errors(visit):
    page = visit()
    measured = {"data": HOSTILE, "metrics": {"ndcg@20": 0.25, "coverage@20": 0.5}, "stderr": {"ndcg@20": 0.01}, "users": 1234}
    page.route("**/models/ease", lambda route: route.fulfill(json=route.fetch().json() | {"measured": [measured]}))
    page.get_by_role("link", name="ease", exact=True).click()
    section = page.locator("section").filter(has=page.get_by_role("heading", name=f"Measured on {HOSTILE}"))
    for text in ("0.2500 ± 0.0100", "0.5000", "Mean over 1,234 users ± standard error"):
        expect(section.get_by_text(text, exact=True)).to_be_visible()
    expect_no_markup(page)


def test_the_leaderboard_is_the_journal(visit, tmp_path):
    journal = tmp_path / "own.jsonl"
    Benchmark(journal).run(find_experiment("movielens").select([], ["Popularity"]))
    tables = Leaderboard(journal).tables()
    page = visit()
    page.route("**/leaderboard", lambda route: route.fulfill(json={"tables": tables}))
    page.get_by_role("link", name="Leaderboard").click()
    expect(page.get_by_role("heading", name=tables[0]["title"])).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Popularity"))
    for figure in tables[0]["data"][0]["rows"][0]["figures"].values():
        expect(row).to_contain_text(f"{figure['ours']:.4f} ± {figure['stderr']:.4f}")


@pytest.fixture
def own_journal(tmp_path, monkeypatch):
    """A journal of own data, in which names are hostile."""
    monkeypatch.setattr(runner, "warm_up", lambda *recipes: None)
    entries = [replace(POPULARITY, name=HOSTILE), EDLAE, replace(EASE, name=SHARED_TITLE)]
    experiment = replace(table(*entries), name="shop.csv, strong split", title="shop.csv, strong split")
    experiment = replace(experiment, data=(replace(experiment.data[0], name="shop.csv"),))
    Benchmark(tmp_path / "own.jsonl").run(experiment)
    return tmp_path / "own.jsonl"


def test_the_leaderboard_of_own_data_is_best_first(visit, own_journal):
    (table_json,) = Leaderboard(own_journal).tables()
    (data,) = table_json["data"]
    page = visit(**PHONE)
    page.route("**/leaderboard", lambda route: route.fulfill(json={"tables": [table_json]}))
    page.get_by_role("link", name="Leaderboard").click()
    expect(page.get_by_role("heading", name="shop.csv, strong split")).to_be_visible()
    expect(page.locator("#page")).to_contain_text(data["about"])
    winners = [row["model"] for row in data["rows"] if row["is_winner"]]
    expect(page.get_by_role("rowheader")).to_have_text(
        [row["model"] + " best" * (row["model"] in winners) for row in data["rows"]]
    )
    last = data["rows"][-1]
    behind = f"{-last['against_best']['difference']:.4f} ± {last['against_best']['stderr']:.4f}"
    expect(page.get_by_role("row").last).to_contain_text(behind)
    expect_no_markup(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_report_follows_the_scheme_and_fits_on_a_phone(browser, own_journal, tmp_path):
    path = write_report(Benchmark(own_journal), [], tmp_path / "report")
    for scheme in ("light", "dark"):
        with closing(browser.new_context(color_scheme=scheme, **PHONE)) as context:
            page, wrong = context.new_page(), []
            page.on("console", lambda message, wrong=wrong: wrong.append(message.text))
            page.on("request", lambda request, wrong=wrong: wrong.append(request.url))
            page.goto(path.as_uri())
            expect(page.locator("figure svg").last).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            expect_scheme(page, scheme)
            expect_scheme(page, scheme, "document.querySelector('figure svg text')", "fill")
            assert page.locator("img, u").count() == 0
            assert [url for url in wrong if not url.startswith("data:image/png")] == [path.as_uri()]


def test_leaderboard_without_a_journal(visit):
    page = visit(refused=["/leaderboard"])
    page.get_by_role("link", name="Leaderboard").click()
    expect(page.locator("#page")).to_contain_text("expected a benchmark journal")
    expect(page.locator("#announcement")).to_contain_text("expected a benchmark journal")


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


VIEWS = {  # fragment → what is visible when the view is complete
    "": "[data-model=edlae] > ol > li",
    f"items={STAR_WARS},{TOY_STORY}&models=ease,edlae,popularity,half": "[data-model=half] > ol > li",
    "user={user}": "#history .of-user",
    f"similar={STAR_WARS}": "[data-model=edlae] > ol > li",
    "model=ease": "figure figcaption",
    "leaderboard": "#page .refused",
}


@pytest.mark.parametrize("fragment", VIEWS)
def test_a_phone_scrolls_only_down(visit, user, fragment):
    page = visit(fragment.format(user=user), refused=["/leaderboard"], **PHONE)
    expect(page.locator(VIEWS[fragment]).last).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_on_a_phone_the_reason_is_a_sheet(visit):
    page = visit(f"items={STAR_WARS},{EMPIRE}", **PHONE)
    expect_titles_loaded(page, 2)
    titles(page, "ease").first.tap()
    panel = page.get_by_role("group", name="Why")
    expect(panel.locator("li")).to_have_count(2)
    box = panel.bounding_box()
    assert (box["x"], box["width"], box["y"] + box["height"]) == (0, 360, 740)
    panel.get_by_role("button", name="Close").tap()
    expect(panel).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme(visit, scheme):
    expect_scheme(visit(color_scheme=scheme), scheme)


def expect_scheme(page, scheme, element="document.body", ink="color"):
    """The background of the page and the ink of an element are light and dark, or dark and light."""
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    colours = background, page.evaluate(f"getComputedStyle({element}).{ink}")
    light = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours]
    assert (light[0] < 64 and light[1] > 192) if scheme == "dark" else (light[0] > 192 and light[1] < 64)
