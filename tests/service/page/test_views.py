"""The other views of the page, its links, errors and tokens, phones and colour schemes; and the HTML report."""

import re
from contextlib import closing
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gramian.experiments import runner
from gramian.experiments.experiment import find_experiment
from gramian.experiments.report import write_report
from gramian.experiments.runner import Benchmark
from gramian.service.leaderboard import Leaderboard
from service.page.support import (
    EMPIRE,
    HOSTILE,
    PHONE,
    SHARED_TITLE,
    STAR_WARS,
    TOY_STORY,
    expect_lists,
    expect_no_markup,
    expect_titles_loaded,
    pick,
    titles,
)
from small_experiments import EASE, EDLAE, POPULARITY, table


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
