"""The pages in a real browser: they show what was planted, keep links, and stay on the host."""

import csv
import json
import re
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest
from browsing import settled, wait_for_query

pytestmark = pytest.mark.browser


def query(page):
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def label_of(page):
    return page.get_by_role("img").first.get_attribute("aria-label")


def lasso_left_cluster(page):
    """Draw around the leftmost third of the map with the mouse."""
    figure = page.get_by_role("img").first
    box = figure.bounding_box()
    left, top = box["x"] + 60, box["y"] + 30
    right, bottom = box["x"] + box["width"] * 0.30, box["y"] + box["height"] * 0.75
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 5)):
        page.mouse.move(x, y, steps=20)
    page.mouse.up()


def test_the_overview_lists_runs_and_links_to_what_they_show(served, open_page):
    page = open_page(served.url + "/")
    settled(page, "240 items at 6 layers")
    settled(page, "AUC at layer 3")
    settled(page, "13 runs")
    settled(page, "nearest to P: 0.25")
    page.get_by_role("link", name="Truth").last.click()
    page.wait_for_url(re.compile("/truth"))
    settled(page, "Every topic at the chosen layer")


def test_a_lasso_fills_the_table_and_its_link_brings_back_the_same_ids(served, open_page, tmp_path):
    page = open_page(served.url + "/map")
    settled(page, "Selected items")
    lasso_left_cluster(page)
    wait_for_query(page, sel=True)
    heading = page.get_by_text(re.compile(r"\d+ of 240 items selected"))
    heading.wait_for()
    drawn = heading.inner_text()
    assert int(drawn.split()[0]) in range(70, 81)
    ids = downloaded(page, tmp_path / "first.csv")
    assert {row["topic"] for row in ids} in ({"geography"}, {"elements"})
    again = open_page(page.url)
    again.get_by_text(drawn).wait_for()
    assert downloaded(again, tmp_path / "second.csv") == ids
    again.keyboard.press("Escape")
    settled(again, "Draw around points")
    wait_for_query(again, sel=None)


def downloaded(page, path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_brackets_step_through_layers_and_the_address_follows(served, open_page):
    page = open_page(served.url + "/map")
    settled(page, "Selected items")
    assert "Layer 3 · 240 of 240 shown" in label_of(page)
    page.keyboard.press("]")
    wait_for_query(page, layer="4")
    page.wait_for_function("() => document.title.length > 0")
    for _ in range(3):
        page.keyboard.press("]")
    wait_for_query(page, layer="5")
    page.keyboard.press("[")
    page.keyboard.press("[")
    wait_for_query(page, layer=None)
    settled(page, "of its variance")


def test_a_filter_is_counted_in_the_title(served, open_page):
    page = open_page(served.url + "/map?only=topic:elements&color=length")
    settled(page, "Selected items")
    assert "80 of 240 shown, colored by length" in label_of(page)


def test_truth_shows_auc_nulls_the_gate_and_the_claims_of_each_organism(served, open_page):
    page = open_page(served.url + "/truth")
    settled(page, "not usable")
    settled(page, "Every topic at the chosen layer")
    settled(page, "Own world against the other three")
    settled(page, "10 propositions")
    labels = [figure.get_attribute("aria-label") for figure in page.get_by_role("img").all()]
    assert any("not usable: lowest AUC 0.88" in label for label in labels)
    assert any("3 models, 4 worlds" in label for label in labels)
    gain = re.compile(r"A \+(1\.9|2\.0).* own minus others, minus base")
    gains = page.get_by_role("row", name=gain)
    gains.wait_for()


def test_within_topics_the_same_direction_passes_the_gate(served, open_page):
    page = open_page(served.url + "/truth?split=within:topic")
    settled(page, "· usable")


def test_dose_shows_the_controls_and_the_symlog_numbers(served, open_page):
    page = open_page(served.url + "/dose")
    settled(page, "random directions: up to")
    settled(page, "4 norm-matched")
    page.get_by_role("cell", name="0.40 (low)").first.wait_for()
    page = open_page(served.url + "/dose?condition=every")
    settled(page, "device")
    assert page.get_by_role("img").count() == 6


def test_dose_judges_the_guarded_doses_and_shows_replies_side_by_side(served, open_page):
    page = open_page(served.url + "/dose")
    settled(page, "left out: 2 of 7 doses have an answer mass under 0.5")
    page.get_by_role("cell", name="-2, -1, 0, 1, 2", exact=True).first.wait_for()
    page.get_by_role("cell", name="An answer at 8.").first.wait_for()
    page.get_by_role("columnheader", name="truth +8 (random:0)").wait_for()


def test_the_probe_page_shows_the_doctor_the_null_and_the_nearest_organism(served, open_page):
    page = open_page(served.url + "/")
    settled(page, "240 items at 6 layers")
    page.keyboard.press("5")
    page.wait_for_url(re.compile("/probe"))
    settled(page, "2 checks passed")
    settled(page, "1 of 4 readings of directions beyond random ones")
    page.get_by_role("cell", name="±0.5 (beyond)").wait_for()
    assert page.get_by_role("cell", name="±0.5 (within)").count() == 3
    page.get_by_role("img", name=re.compile("2 known, nearest P at 0.25")).wait_for()
    page.get_by_role("img", name=re.compile("truth@3, change from the base")).wait_for()


def test_the_numbers_of_the_dose_page_come_in_full_as_a_file(served, open_page, tmp_path):
    page = open_page(served.url + "/dose")
    settled(page, "Numbers")
    rows = downloaded(page, tmp_path / "doses.csv")
    own = {float(row["dose"]): row for row in rows if row["control"] == "none"}
    listed = page.get_by_role("row", name=re.compile("steered")).all()
    cells = [row.get_by_role("cell").all_inner_texts() for row in listed]
    shown = {float(dose): mean for _, _, dose, mean, *_ in cells}
    assert {dose: f"{float(row['mean']):.3f}" for dose, row in own.items()} == shown
    assert own[0.0]["random_low"] == ""
    edge = own[max(own)]
    assert float(edge["random_low"]) <= float(edge["random_high"])
    assert {row["guarded"] for row in rows} <= {"True", "False"}


def test_the_rows_of_the_probe_page_come_in_full_as_a_file(served, open_page, tmp_path):
    page = open_page(served.url + "/probe?readout=claims.loglik")
    settled(page, "2 checks passed")
    rows = downloaded(page, tmp_path / "probe.csv")
    assert {row["kind"] for row in rows} == {"direction", "readout", "known"}
    assert [row["name"] for row in rows if row["kind"] == "known"] == ["P", "A"]
    assert [row["nearest"] for row in rows if row["kind"] == "known"] == ["0.96", "0.04"]
    (up,) = (r for r in rows if (r["name"], r["condition"]) == ("truth@3", "P"))
    assert (float(up["change"]), up["beyond_null"]) == (2.0, "True")


def test_every_control_of_a_sweep_is_drawn_and_listed(serve, writers, tmp_path, open_page):
    writers.write_rows(tmp_path, writers.every_control())
    page = open_page(serve(tmp_path).url + "/dose")
    settled(page, "Other controls")
    page.get_by_role("img", name=re.compile("also layers:0, layers:1, prompt:kind")).wait_for()
    page.get_by_role("cell", name="prompt: kind", exact=True).first.wait_for()
    page.get_by_role("button", name=re.compile("theme", re.I)).click()
    wait_for_query(page, theme="dark")
    page.get_by_role("img", name=re.compile("also layers:0, layers:1, prompt:kind")).wait_for()


BAD = {
    "/map?layer=99&run=nope&sel=pca~3~1,2&colour=topic": [
        *("layer=99", "run=nope", "sel=pca~3~1,2", "unknown setting colour"),
    ],
    "/map?sel=umap~3~0,0;1,1;1,0": ["sel=umap"],
    "/truth?topic=cooking": ["topic=cooking"],
    "/dose?condition=ghost": ["condition=ghost"],
    "/probe?direction=ghost": ["direction=ghost"],
    "/?theme=sepia": ["theme=sepia"],
}


@pytest.mark.parametrize(("address", "words"), BAD.items())
def test_a_bad_address_is_reported_and_rewritten(served, open_page, address, words):
    page = open_page(served.url + address)
    for said in words:
        settled(page, said)
    wait_for_query(page, **dict.fromkeys(parse_qs(urlsplit(address).query)))


def test_a_later_session_works_after_an_earlier_one_is_gone(serve, full_root, open_page):
    alone = serve(full_root, "--session-seconds", "5")
    first = open_page(alone.url + "/map?layer=2")
    settled(first, "Selected items")
    first.close()
    alone.wait_for_log("ended")
    for path, words in (("/map?layer=1", "of its variance"), ("/truth", "Every topic")):
        settled(open_page(alone.url + path), words)


@pytest.mark.parametrize("path", ["/", "/map", "/truth", "/dose", "/probe"])
def test_a_phone_gets_a_closed_sidebar_and_no_sideways_scroll(
    served, open_page, fits_a_phone, path
):
    page = open_page(f"{served.url}{path}?theme=dark", phone=True)
    page.get_by_role("heading", level=2).first.wait_for()
    fits_a_phone(page)


@pytest.mark.parametrize(
    ("path", "head"),
    [("/truth", "difference"), ("/dose", "slope"), ("/dose", "verdict"), ("/probe", "mean")],
)
def test_a_phone_sees_what_was_found_and_that_a_table_scrolls(served, open_page, path, head):
    page = open_page(served.url + path, phone=True)
    box = page.get_by_role("columnheader", name=head, exact=True).first.bounding_box()
    assert box["x"] + box["width"] <= 390
    code = """them => them.map(it =>
        [it.scrollWidth > it.clientWidth, getComputedStyle(it, '::before').display])"""
    tables = page.locator(".scroll").evaluate_all(code)
    assert tables
    assert all(display == ("block" if cut else "none") for cut, display in tables)


def test_a_wide_window_cuts_no_column_of_the_worlds(served, open_page):
    page = open_page(served.url + "/truth")
    table = page.locator(".scroll").filter(has_text="own world").first
    assert table.evaluate("it => it.scrollWidth <= it.clientWidth")


def test_a_narrow_window_starts_with_the_sidebar_closed(served, open_page, no_sideways_scroll):
    page = open_page(served.url + "/map", width=390)
    page.get_by_role("heading", level=2).first.wait_for()
    page.get_by_role("navigation", name="Pages").wait_for(state="hidden")
    no_sideways_scroll(page)
    page.get_by_role("button", name=re.compile("drawer", re.I)).click()
    page.get_by_role("navigation", name="Pages").wait_for()


def test_the_back_button_returns_to_the_view_before(served, open_page):
    page = open_page(served.url + "/map")
    settled(page, "of its variance")
    page.keyboard.press("]")
    wait_for_query(page, layer="4")
    page.go_back()
    wait_for_query(page, layer=None)
    settled(page, "of its variance")
    assert "Layer 3" in label_of(page)


def test_the_theme_button_repaints_the_figures_and_is_kept_in_the_address(served, open_page):
    page = open_page(served.url + "/dose")
    settled(page, "random directions: up to")
    page.get_by_role("button", name=re.compile("theme", re.I)).click()
    wait_for_query(page, theme="dark")
    page.get_by_role("link", name="Truth").first.click()
    page.wait_for_url(re.compile(r"/truth\?theme=dark"))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "Not here yet"),
        ("/map", "Here would be activations"),
        ("/truth", "Here would be evidence"),
        ("/dose", "Here would be a dose sweep"),
        ("/probe", "Here would be a checkpoint beside its base"),
    ],
)
def test_an_empty_root_says_what_to_run(empty, open_page, path, words):
    page = open_page(empty.url + path)
    settled(page, words)
    command = "workbench probe MODEL" if path == "/probe" else "workbench run studies/demo.toml"
    settled(page, command)
    settled(page, f"--runs {empty.root}")
    settled(page, "It takes")
    link = page.locator("a[href^='/docs/']").first.get_attribute("href")
    with urlopen(empty.url + link, timeout=20) as found:
        assert found.read().startswith(b"# ")


def test_a_broken_file_makes_one_card_and_the_rest_of_the_page_lives(
    serve, writers, tmp_path, open_page
):
    fit = writers.write_fit(tmp_path)
    writers.write_claims(tmp_path, fit)
    (fit / "evidence.parquet").write_bytes(b"PAR1 half")
    page = open_page(serve(tmp_path).url + "/truth")
    settled(page, "damaged or half-written")
    settled(page, "Open with default settings")
    settled(page, "Own world against the other three")


def test_a_sweep_without_controls_says_what_to_run(serve, writers, tmp_path, open_page):
    writers.write_sweep(tmp_path, controls=0)
    page = open_page(serve(tmp_path).url + "/dose")
    settled(page, "nothing says")
    settled(page, "controls = 10")


def test_an_unknown_address_leads_back_to_the_pages(served, open_page):
    with pytest.raises(HTTPError, match="404") as found:
        urlopen(served.url + "/<b>x</b>", timeout=20)
    shown = found.value.read().decode()
    assert "No such page" in shown
    assert "<b>x" not in shown
    for target in ("/", "/dose", "/trust"):
        assert f"href='{target}'" in shown


def test_another_host_name_is_refused(served):
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(served.url + "/map", headers={"Host": host}), timeout=20)
    port = served.url.rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}"):
        with urlopen(Request(served.url + "/map", headers={"Host": host}), timeout=20) as page:
            assert page.status == 200


def test_figures_and_numbers_in_the_page_are_no_scripts(serve, writers, tmp_path, open_page):
    path = writers.write_fit(tmp_path)
    content = json.loads((path / "run.json").read_text())
    content["models"] = ["<img src=x onerror=alert(1)>"]
    (path / "run.json").write_text(json.dumps(content))
    page = open_page(serve(tmp_path).url + "/truth")
    page.get_by_text(re.compile("run .*<img src=x")).first.wait_for()
