"""What the tests of the page pick, and what the page must show.

Wait for what must be visible before pressing keys or moving the mouse: on a busy machine, views and titles arrive late.
"""

import re

from playwright.sync_api import expect

import gramian as gr

RECIPES = {"ease": gr.EASE(l2=200), "edlae": gr.EDLAE(dropout=0.3, l2=200), "popularity": gr.Popularity()}
HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
SHARED_TITLE = "Twice <u>told</u>"
TOY_STORY, STAR_WARS, EMPIRE, MATRIX, LAMBS, BEAUTY = 1, 260, 1196, 2571, 593, 2858
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


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


def expect_no_markup(page):
    """No element of a hostile title is in the page."""
    assert page.locator("img, u, main b:not(.explanation b):not(.tag b)").count() == 0
