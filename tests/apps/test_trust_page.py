"""The trust page in a real browser: planted margins, and the pair behind a point."""

import csv
import re

import pytest
import trust_runs
from browsing import refuse, settled, wait_for_query

pytestmark = pytest.mark.browser


def whole(page):
    """Wait for the last figure: what a page is told while it comes up may get lost."""
    page.get_by_role("img", name=re.compile("Cosine with the baseline by block")).wait_for()
    page.wait_for_timeout(500)


def test_margins_controls_verdicts_and_blocks_show_what_was_planted(served, open_page, tmp_path):
    page = open_page(served.url + "/trust")
    settled(page, "bipo: margin -0.4")
    settled(page, "Scenarios: all facets 36, ability 12, benevolence 12, integrity 12.")
    figures = page.get_by_role("img", name=re.compile("bipo · .* 3 random directions"))
    figures.last.wait_for()
    assert figures.count() == 1 + len(trust_runs.FACETS)
    page.get_by_role("row", name=re.compile(r"bipo — all facets \+0\.2 \[")).wait_for()
    page.get_by_role("row", name=re.compile(r"bipo shuffled 1 0\.44")).wait_for()
    settled(page, "Slope +0.2 [+0.2, +0.2] nats a token and dose; above shuffled labels.")
    page.get_by_role("row", name=re.compile(r"— \+2 \+0\.300 .* -0\.100 .* -0\.020")).wait_for()
    page.get_by_role(
        "row", name=re.compile(r"transfer, person — \+2 .*±0\.500 \(beyond\) 0\.40 \(low\)")
    ).wait_for()
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
    whole(page)
    page.keyboard.press("]")
    wait_for_query(page, item=True)
    settled(page, "figures twice. Please write note")
    settled(page, "with a check of each. <b>Not bold.</b>")
    page.keyboard.press("Escape")
    wait_for_query(page, item=None)
    settled(page, "Click a point above, or press ]")


def test_a_click_on_a_point_shows_its_pair(served, open_page):
    page = open_page(served.url + "/trust?facet=ability")
    whole(page)
    figure = page.get_by_role("img", name=re.compile("pair by pair")).first
    figure.scroll_into_view_if_needed()
    item, x, y = page.evaluate(PLACE_OF_A_POINT)
    page.mouse.click(x, y)
    wait_for_query(page, item=item)
    settled(page, "Its margin")
    settled(page, f"{item} · ability")


PLACE_OF_A_POINT = """() => {
    const views = [...Bokeh.index].flatMap((root) => {
        const found = [];
        const walk = (view) => {
            if (view.model.type === 'Figure') { found.push(view) }
            for (const child of view.children_views ? view.children_views() : []) { walk(child) }
            for (const child of view.child_views || []) { walk(child) }
        };
        walk(root);
        return found;
    });
    for (const view of views) {
        const glyph = view.model.renderers.find((one) => one.name === 'items');
        if (!glyph) { continue }
        const data = glyph.data_source.data;
        const box = view.el.getBoundingClientRect();
        const frame = view.frame;
        const x = frame.x_scale.compute(data.before[0]);
        const y = frame.y_scale.compute(data.after[0]);
        return [data.item[0], box.x + x, box.y + y];
    }
    return null;
}"""


def test_a_bad_address_is_reported_and_rewritten(served, open_page):
    wrong = ["method=prayer", "dose=9", "facet=charm", "item=ability-99", "layer=3"]
    page = open_page(f"{served.url}/trust?{'&'.join(wrong)}")
    refuse(page, wrong, [*wrong[:-1], "setting layer"])


def test_a_phone_gets_no_sideways_scroll(served, open_page, fits_a_phone):
    page = open_page(f"{served.url}/trust?theme=dark&item=ability-03", phone=True)
    settled(page, "The matrix by block")
    fits_a_phone(page)


def test_an_empty_root_says_what_to_run(empty, open_page):
    page = open_page(empty.url + "/trust")
    settled(page, "Here would be margins of trusting replies")
    settled(page, "workbench run studies/trust_smollm2.toml")


def test_a_run_without_texts_says_so_and_a_broken_table_makes_one_card(serve, tmp_path, open_page):
    path = trust_runs.write_trust(tmp_path, without=("pairs",))
    (path / "blocks.parquet").write_bytes(b"PAR1 half")
    page = open_page(serve(tmp_path).url + "/trust?item=ability-03")
    settled(page, "This run keeps no texts of ability-03")
    settled(page, "damaged or half-written")
    settled(page, "Accuracy by facet")
