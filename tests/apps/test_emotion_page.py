"""The emotions page in a real browser: planted likeness, and own text on a tiny model."""

import csv
import re

import emotion_runs
import pytest
from browsing import refuse, settled, wait_for_query

from workbench.runs import open_run

pytestmark = pytest.mark.browser


def drawn(page, start):
    figure = page.get_by_role("img", name=re.compile(start)).first
    figure.wait_for()
    return figure


def downloaded(page, number, path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").nth(number).click()
    download.value.save_as(path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_likeness_layers_valence_and_profiles_show_what_was_planted(served, open_page, tmp_path):
    page = open_page(served.url + "/emotions")
    settled(page, "6 emotions at layer 3; first component with valence r = +0.97")
    assert "cosines of 6 emotions" in drawn(page, "Cosines at layer 3").get_attribute("aria-label")
    assert "anger 0.90 at layer 3" in drawn(page, "One emotion").get_attribute("aria-label")
    settled(page, "Shaded: the window, blocks 2 to 4")
    page.get_by_role("cell", name="arousal").wait_for()
    assert "6 emotions, 2 models" in drawn(page, "each emotion's own").get_attribute("aria-label")
    page.get_by_role("row", name=re.compile(r"joy 3 -1\.00 .* ±0\.40 \(beyond\) ±1\.15")).wait_for()
    rows = downloaded(page, 0, tmp_path / "similarity.csv")
    assert len(rows) == 36
    assert {row["layer"] for row in rows} == {"3"}


def test_a_click_on_a_cell_chooses_the_emotion_of_its_row(served, open_page):
    page = open_page(served.url + "/emotions")
    whole(page)
    x, y = page.evaluate(PLACE_OF_A_CELL, ["pride", "fear"])
    page.mouse.click(x, y)
    wait_for_query(page, emotion="pride")
    settled(page, "Most like pride:")


PLACE_OF_A_CELL = """([first, second]) => {
    const found = [];
    const walk = (view) => {
        if (view.model.type === 'Figure') { found.push(view) }
        for (const child of view.children_views ? view.children_views() : []) { walk(child) }
        for (const child of view.child_views || []) { walk(child) }
    };
    for (const root of Bokeh.index) { walk(root) }
    const view = found.find((one) => one.model.renderers.some((r) => r.name === 'cells'));
    const box = view.el.getBoundingClientRect();
    return [box.x + view.frame.x_scale.compute(second), box.y + view.frame.y_scale.compute(first)];
}"""


def whole(page):
    """Wait for the last card: what a page is told while it comes up may get lost."""
    settled(page, "Your own text")
    drawn(page, "each emotion's own")
    page.wait_for_timeout(500)


def test_brackets_move_every_figure_and_back_returns(served, open_page):
    page = open_page(served.url + "/emotions")
    whole(page)
    page.keyboard.press("]")
    wait_for_query(page, layer="4")
    drawn(page, "Cosines at layer 4")
    settled(page, "6 emotions at layer 4;")
    page.go_back()
    wait_for_query(page, layer=None)
    drawn(page, "Cosines at layer 3")


def test_a_bad_address_is_reported_and_rewritten(served, open_page):
    wrong = ["layer=99", "emotion=hunger", "half=third", "window=peaks"]
    page = open_page(f"{served.url}/emotions?{'&'.join(wrong)}")
    refuse(page, wrong)


def test_a_phone_gets_no_sideways_scroll(served, open_page, fits_a_phone):
    page = open_page(f"{served.url}/emotions?theme=dark", phone=True)
    settled(page, "Your own text")
    fits_a_phone(page)


def test_an_empty_root_says_what_to_run(empty, open_page):
    page = open_page(empty.url + "/emotions")
    settled(page, "Here would be emotion vectors")
    settled(page, "workbench run studies/emotion_smollm2.toml")


def test_a_broken_table_makes_one_card_and_the_rest_lives(serve, tmp_path, open_page):
    path = emotion_runs.write_emotions(tmp_path)
    (path / "valence.parquet").write_bytes(b"PAR1 half")
    page = open_page(serve(tmp_path).url + "/emotions")
    settled(page, "damaged or half-written")
    settled(page, "Profiles of organisms")
    drawn(page, "One emotion against the rest")
    settled(page, "Your own text")


# --- with a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(serve, tmp_path_factory, tiny_folder, tiny_adapter):
    import workbench as wb

    root = tmp_path_factory.mktemp("emotions")
    base = str(tiny_folder(root / "base"))
    stamp = wb.load(base, check=False).stamp
    emotion_runs.write_emotions(root / "runs", stamp, base)
    place = root / "runs" / "train" / "P-s0"
    with open_run("train", {"model": base, "name": "P-s0"}, out=place) as run:
        tiny_adapter(place, base)
        run.finish({}, models=["tiny+P-s0"])
    return serve(root / "runs", "--session-seconds", "5")


def type_in(page, first, second):
    page.get_by_label("First text", exact=True).fill(first)
    page.get_by_label("Second text", exact=True).fill(second)
    page.get_by_role("button", name="Read the texts").click()


def test_two_texts_are_read_side_by_side_and_another_layer_needs_no_reading(
    live, open_page, tmp_path
):
    page = open_page(live.url + "/emotions?emotion=joy")
    settled(page, "Your own text")
    type_in(page, "the city is true", "I send you the rest of it")
    settled(page, "Done in", seconds=90)
    lists = page.get_by_role("list", name=re.compile("along joy"))
    lists.nth(1).wait_for()
    assert "".join(lists.nth(0).get_by_role("listitem").all_inner_texts()) == "the city is true"
    drawn(page, "Means at layer 3")
    rows = downloaded(page, page.get_by_role("button", name="Download CSV").count() - 1,
                      tmp_path / "tokens.csv")  # fmt: skip
    assert {row["text"] for row in rows} == {"first text", "second text"}
    assert {row["emotion"] for row in rows} == set(emotion_runs.NAMES)
    assert lists.nth(0).get_by_role("listitem").first.get_attribute("data-tip").startswith("“t” ")
    page.get_by_role("heading", level=1).click()  # keys are inactive while typing
    page.keyboard.press("[")
    page.wait_for_function("() => window.location.search.includes('layer=')")
    drawn(page, "Means at layer 2")
    assert lists.count() == 2


def test_nothing_typed_is_refused_in_place_and_one_text_is_enough(live, open_page):
    page = open_page(live.url + "/emotions")
    settled(page, "Your own text")
    type_in(page, "", "")
    settled(page, "both texts are empty")
    type_in(page, "the city is true", "")
    lists = page.get_by_role("list", name=re.compile("along"))
    lists.first.wait_for(timeout=90_000)
    settled(page, "Done in")
    assert lists.count() == 1
