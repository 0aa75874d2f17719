"""The persona page in a real browser: planted roles, and live cards on a tiny model."""

import csv
import re
from urllib.parse import parse_qs, urlsplit

import browsing
import persona_runs
import pytest
from browsing import refuse, wait_for_query

pytestmark = pytest.mark.browser

CHAT = (
    "User: Tell me of the city\nAssistant: the city is true\nUser: and you\nAssistant: I send you"
)


def settled(page, text, seconds=120):
    """Wait as long as a model takes to answer."""
    browsing.settled(page, text, seconds)


def label(page, start):
    return page.get_by_role("img", name=re.compile(start)).first.get_attribute("aria-label")


def downloaded(page, number, path):
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").nth(number).click()
    download.value.save_as(path)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_map_the_axis_and_the_cosines_show_what_was_planted(served, open_page, tmp_path):
    page = open_page(served.url + "/persona")
    settled(page, "the default lies beyond 20 of 20 roles")
    settled(page, "The cap over a fleet")
    page.get_by_role("img", name=re.compile("Cap engagement: own.*A final 60%")).wait_for()
    page.get_by_role(
        "img", name=re.compile("trust_game transfer person, before to after.*A 2 to 3.5")
    ).wait_for()
    page.get_by_role("img", name=re.compile("Gap between conditions.*P - A 4 to 2.5")).wait_for()
    settled(page, "Judged by nobody: every rollout counts")
    assert re.search(r"20 of 20 roles shown.*P-s0 at 3.*A-s0 at -1", label(page, "Persona map"))
    assert "Histogram of 20 roles" in label(page, "Histogram")
    assert "lowest cosine 0.9" in label(page, "Axis and first component")
    assert "P - A with roles at layer 3" in label(page, "P - A")
    rows = downloaded(page, 0, tmp_path / "personas.csv")
    assert len(rows) == 23
    assert {row["layer"] for row in rows} == {"3"}


def test_brackets_move_every_figure_and_back_returns(served, open_page):
    page = open_page(served.url + "/persona")
    settled(page, "Layer 3:")
    page.keyboard.press("]")
    wait_for_query(page, layer="4")
    page.get_by_role("img", name=re.compile("Persona map: Layer 4")).wait_for()
    page.get_by_role("img", name=re.compile("P - A with roles at layer 4")).wait_for()
    settled(page, "Layer 4:")
    page.go_back()
    wait_for_query(page, layer=None)
    page.get_by_role("img", name=re.compile("Persona map: Layer 3")).wait_for()


def test_a_bad_address_is_reported_and_rewritten(served, open_page):
    wrong = ["layer=99", "window=4-2", "percentile=33", "model=gpt"]
    page = open_page(f"{served.url}/persona?{'&'.join(wrong)}")
    refuse(page, wrong)


def test_a_phone_gets_no_sideways_scroll(served, open_page, fits_a_phone):
    page = open_page(f"{served.url}/persona?theme=dark", phone=True)
    settled(page, "Capped beside uncapped")
    fits_a_phone(page)


def test_an_empty_root_says_what_to_run(empty, open_page):
    page = open_page(empty.url + "/persona")
    settled(page, "Here would be roles and the Assistant Axis")
    settled(page, "workbench run studies/axis_smollm2.toml")


def test_a_broken_table_makes_one_card_and_the_rest_lives(serve, tmp_path, open_page):
    axis = persona_runs.write_axis(tmp_path)
    (axis / "pc1.parquet").write_bytes(b"PAR1 half")
    page = open_page(serve(tmp_path).url + "/persona")
    settled(page, "damaged or half-written")
    settled(page, "Here would be the cosines")
    settled(page, "Capped beside uncapped")


# --- with a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(serve, tmp_path_factory, tiny_folder, tiny_adapter):
    root = tmp_path_factory.mktemp("live")
    persona_runs.write_live(root / "runs", root, tiny_folder, tiny_adapter)
    return serve(root / "runs", "--session-seconds", "5")


def paste(page, text):
    page.get_by_label("Conversation", exact=True).fill(text)
    page.get_by_role("button", name="Read the conversation").click()


def test_a_conversation_is_read_by_two_models_turn_by_turn_and_token_by_token(
    live, open_page, tmp_path
):
    page = open_page(live.url + "/persona?other=P-s0")
    paste(page, CHAT)
    page.get_by_role("img", name=re.compile("Assistant turns at layer 2.*P-s0")).wait_for(
        timeout=240_000
    )
    rows = downloaded(page, 1, tmp_path / "tokens.csv")
    assert {row["model"] for row in rows} == {"base", "P-s0"}
    own = [row for row in rows if row["model"] == "base" and row["turn"] == "1"]
    assert "".join(row["text"] for row in own) == "the city is true"
    first = page.get_by_role("list", name=re.compile(r"Assistant, mean .*, base")).first
    token = first.get_by_role("listitem").first
    token.focus()
    value = float(own[0]["value"])
    assert f"{value:+.3f}" in token.get_attribute("aria-label")
    page.keyboard.press("Tab")
    focused = first.get_by_role("listitem").nth(1)
    assert focused.evaluate("it => it === it.getRootNode().activeElement")
    page.get_by_text("Script", exact=True).first.click()
    settled(page, "from workbench.drift import conversation_drift")


def test_two_replies_stand_side_by_side_and_the_layer_moves_without_asking_again(live, open_page):
    page = open_page(live.url + "/persona")
    page.get_by_label(re.compile("Prompt, or")).fill("Tell me of the city")
    page.get_by_role("button", name="Answer with and without").click()
    page.get_by_text("an illustration, not a measurement").wait_for(timeout=240_000)
    for arm in ("uncapped", "capped"):
        page.get_by_role("list", name=f"{arm} reply", exact=True).wait_for()
        page.get_by_role("row", name=re.compile(f"^{arm} ")).wait_for()
    paste(page, CHAT)
    page.get_by_role("img", name=re.compile("Assistant turns at layer 2")).wait_for(timeout=240_000)
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("]")
    page.get_by_role("img", name=re.compile("Assistant turns at layer 3")).wait_for()
    page.get_by_role("list", name="capped reply", exact=True).wait_for()


def test_what_is_no_conversation_says_why_and_the_page_lives(live, open_page):
    page = open_page(live.url + "/persona")
    paste(page, "just words")
    settled(page, "line 1 is nobody's")
    paste(page, CHAT)
    page.get_by_role("img", name=re.compile("Assistant turns at layer 2")).wait_for(timeout=240_000)


def test_a_second_session_waits_in_line_and_can_leave_it(live, open_page):
    first, second = (open_page(live.url + "/persona") for _ in range(2))
    first.get_by_label("New tokens").fill("1024")
    first.get_by_label("New tokens").press("Tab")
    first.get_by_label("Temperature").fill("0")
    first.get_by_label("Temperature").press("Tab")
    first.get_by_role("button", name="Answer with and without").click()
    settled(first, "replies are being written", 240)
    second.get_by_role("button", name="Read the conversation").click()
    settled(second, "The model is busy: waiting, 1 job ahead")
    second.get_by_role("button", name="Cancel").click()
    settled(second, "Canceled.")
    first.get_by_role("button", name="Cancel").click()
    settled(first, "Canceled.")
    first.get_by_role("button", name="Read the conversation").click()
    first.get_by_role("img", name=re.compile("Assistant turns")).wait_for(timeout=240_000)


def test_a_model_that_is_gone_is_a_message_and_the_page_lives(serve, tmp_path, open_page):
    persona_runs.write_axis(tmp_path, model=str(tmp_path / "gone"))
    page = open_page(serve(tmp_path).url + "/persona")
    page.get_by_role("button", name="Read the conversation").click()
    settled(page, "no model folder", 240)
    page.keyboard.press("Escape")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("]")
    page.get_by_role("img", name=re.compile("Persona map: Layer 4")).wait_for()


def test_a_later_session_works_after_an_earlier_one_is_gone(live, open_page):
    first = open_page(live.url + "/persona?layer=1")
    settled(first, "Layer 1:")
    first.close()
    live.wait_for_log("ended")
    page = open_page(live.url + "/persona")
    paste(page, CHAT)
    page.get_by_role("img", name=re.compile("Assistant turns at layer 2")).wait_for(timeout=240_000)
    assert parse_qs(urlsplit(page.url).query) == {}
