"""The trust page in a real browser: planted margins, and the pair behind a point."""

import csv
import re

import pytest
import trust_runs

pytestmark = pytest.mark.browser


def settled(page, text, seconds=20):
    page.get_by_text(text, exact=False).first.wait_for(timeout=1000 * seconds)


def wait_for_query(page, **expected):
    code = """(wanted) => {
        const found = new URLSearchParams(window.location.search);
        return Object.entries(wanted).every(([k, v]) => v === null ? !found.has(k)
            : v === true ? found.has(k) : found.get(k) === v);
    }"""
    page.wait_for_function(code, arg=expected)


def test_margins_controls_verdicts_and_blocks_show_what_was_planted(served, open_page, tmp_path):
    page = open_page(served.url + "/trust")
    settled(page, "bipo: margin -0.4")
    figures = page.get_by_role("img", name=re.compile("bipo · .* 3 random directions"))
    figures.last.wait_for()
    assert figures.count() == 1 + len(trust_runs.FACETS)
    page.get_by_role("row", name=re.compile(r"bipo — all facets smallest step 0\.2 ")).wait_for()
    page.get_by_role("row", name=re.compile(r"bipo shuffled 1 0\.44")).wait_for()
    page.get_by_role("img", name=re.compile("Norm .* by block: bipo largest at layer 4")).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").first.click()
    download.value.save_as(tmp_path / "margin.csv")
    with (tmp_path / "margin.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"bipo"}
    assert {row["control"] for row in rows} == {
        "none", "shuffled", "random:0", "random:1", "random:2",
    }  # fmt: skip


def test_keys_go_through_the_pairs_and_escape_leaves_them(served, open_page):
    page = open_page(served.url + "/trust")
    settled(page, "Click a point above, or press ]")
    page.keyboard.press("]")
    wait_for_query(page, item=True)
    settled(page, "figures twice. Please write note")
    settled(page, "with a check of each. <b>Not bold.</b>")
    page.keyboard.press("Escape")
    wait_for_query(page, item=None)
    settled(page, "Click a point above, or press ]")


def test_a_click_on_a_point_shows_its_pair(served, open_page):
    page = open_page(served.url + "/trust?facet=ability")
    figure = page.get_by_role("img", name=re.compile("pair by pair")).first
    figure.wait_for()
    box = figure.bounding_box()
    for step in range(60):
        if "item=" in page.url:
            break
        share = 0.12 + 0.8 * step / 60
        page.mouse.click(box["x"] + box["width"] * share, box["y"] + 60 + 210 * (1 - share))
        page.wait_for_timeout(150)
    else:
        points_along_a_line(page, box)
    wait_for_query(page, item=True)
    settled(page, "Its margin")
    assert re.search("item=ability-", page.url)


def points_along_a_line(page, box):
    """Sweep the plot with clicks until one hits; a hit is in the address."""
    for row in range(70, 300, 8):
        for column in range(90, int(box["width"]) - 20, 12):
            page.mouse.click(box["x"] + column, box["y"] + row)
            if "item=" in page.url:
                return


@pytest.mark.parametrize(
    "address", ["method=prayer", "dose=9", "facet=charm", "item=ability-99", "layer=3"]
)
def test_a_bad_address_is_reported_and_rewritten(served, open_page, address):
    page = open_page(f"{served.url}/trust?{address}")
    settled(page, "setting layer" if address == "layer=3" else address)
    wait_for_query(page, **{address.partition("=")[0]: None})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_gets_no_sideways_scroll(served, open_page, theme):
    page = open_page(f"{served.url}/trust?theme={theme}&item=ability-03", phone=True)
    settled(page, "The matrix by block")
    page.get_by_role("navigation", name="Pages").wait_for(state="hidden")
    wide, room = page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    inner = page.locator("main").evaluate("it => [it.scrollWidth, it.clientWidth]")
    assert wide <= room
    assert inner[0] <= inner[1]


def test_an_empty_root_says_what_to_run(serve, tmp_path, open_page):
    page = open_page(serve(tmp_path).url + "/trust")
    settled(page, "Here would be margins of trusting replies")
    settled(page, "workbench run studies/trust_smollm2.toml")


def test_a_run_without_texts_says_so_and_a_broken_table_makes_one_card(serve, tmp_path, open_page):
    path = trust_runs.write_trust(tmp_path, without=("pairs",))
    (path / "blocks.parquet").write_bytes(b"PAR1 half")
    page = open_page(serve(tmp_path).url + "/trust?item=ability-03")
    settled(page, "This run keeps no texts of ability-03")
    settled(page, "damaged or half-written")
    settled(page, "Accuracy by facet")
