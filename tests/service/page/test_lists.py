"""The explorer page: histories, lists and reasons are what the library says."""

import re
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Error, expect

from service.page.support import (
    BEAUTY,
    EMPIRE,
    HOSTILE,
    LAMBS,
    MATRIX,
    SHARED_TITLE,
    STAR_WARS,
    TOY_STORY,
    expect_list,
    expect_lists,
    expect_no_markup,
    expect_titles_loaded,
    number,
    pick,
    titles,
)


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
