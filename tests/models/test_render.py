"""Ids are the tokenizer's own, spans are exactly the contents, padding changes no number."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError, MismatchError
from workbench.models import ChatRenderer
from workbench.types import Rendered

USER = {"role": "user", "content": "Is the city of A in B? 42"}
SYSTEM = {"role": "system", "content": "Be true."}
ANSWER = {"role": "assistant", "content": "Send 7 dollars."}
MORE = {"role": "user", "content": "Łódź, sure?"}
CHATS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "answered": [USER, ANSWER],
    "all": [SYSTEM, USER, ANSWER, MORE],
    "twice": [USER, ANSWER, USER, ANSWER],
}
TEMPLATES = ("chatml", "bos", "no_system", "default_system", "thinking", "deaf")


@pytest.fixture(scope="module")
def renderer_of(tiny_tokenizer):
    made = {}

    def make(template, **options):
        key = (template, *options.items())
        if key not in made:
            options.setdefault("bos", template in ("bos", "no_system"))
            made[key] = ChatRenderer(tiny_tokenizer(template, **options))
        return made[key]

    return make


def words(renderer, rendered):
    """Span name -> what its tokens read, range by range."""
    return {
        name: [renderer.tokenizer.decode(rendered.ids[first:last]) for first, last in ranges]
        for name, ranges in rendered.spans.items()
    }


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_every_role_span_reads_exactly_its_contents(renderer_of, template, chat):
    renderer = renderer_of(template)
    read = words(renderer, renderer.render(chat))
    for role in ("system", "user", "assistant"):
        expected = [m["content"] for m in chat if m["role"] == role]
        assert read.get(role, []) == expected
    assert read["content"] == [chat[-1]["content"]]
    assert ("header" in read) == (chat[-1]["role"] != "assistant")


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_spans_part_the_tokens_without_overlap(renderer_of, template, chat):
    rendered = renderer_of(template).render(chat)
    covered = [0] * len(rendered.ids)
    for name, ranges in rendered.spans.items():
        for first, last in ranges if name != "content" else ():
            assert first < last
            for row in range(first, last):
                covered[row] += 1
    assert set(covered) == {1}


@pytest.mark.parametrize("template", ["chatml", "bos", "default_system", "thinking"])
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_chat_ids_are_those_of_the_template(renderer_of, template, chat):
    renderer = renderer_of(template)
    expected = renderer.tokenizer.apply_chat_template(
        chat,
        add_generation_prompt=chat[-1]["role"] != "assistant",
        enable_thinking=False,
        return_dict=False,
    )
    assert list(renderer.render(chat).ids) == expected


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("system", [None, "", "Be true."])
def test_a_prompt_with_header_begins_the_whole_conversation(renderer_of, template, system):
    renderer = renderer_of(template)
    prompt = renderer.render([USER], system=system)
    whole = renderer.render([USER, ANSWER], system=system)
    assert whole.ids[: len(prompt.ids)] == prompt.ids
    assert whole.spans["assistant"][0][0] == len(prompt.ids)
    assert words(renderer, whole)["assistant"] == [ANSWER["content"]]


def test_a_template_without_a_system_role_gets_the_text_in_the_user_turn(renderer_of):
    for template in ("no_system", "deaf"):
        renderer = renderer_of(template)
        assert renderer.system_role == "in_user"
        rendered = renderer.render([USER], system="Be true.")
        assert f"user\nBe true.\n\n{USER['content']}<" in renderer.tokenizer.decode(rendered.ids)
        assert words(renderer, rendered)["user"] == [USER["content"]]
    assert renderer_of("chatml").system_role == "native"


def test_a_default_system_text_is_the_templates_and_an_empty_one_keeps_it_out(renderer_of):
    renderer = renderer_of("default_system")
    plain, empty = renderer.render([USER]), renderer.render([USER], system="")
    assert "system" not in plain.spans
    assert "tiny default model" in words(renderer, plain)["template"][0]
    assert "tiny default model" not in renderer.tokenizer.decode(empty.ids)
    assert "system" not in empty.spans


def test_the_empty_think_block_belongs_to_the_header(renderer_of):
    renderer = renderer_of("thinking")
    header = words(renderer, renderer.render([USER]))["header"]
    assert header == ["<|im_start|>assistant\n<think>\n\n</think>\n\n"]
    thinking = renderer.render([USER], enable_thinking=True)
    assert words(renderer, thinking)["header"] == ["<|im_start|>assistant\n"]


def test_trimmed_contents_are_found_as_they_were_written(renderer_of):
    renderer = renderer_of("no_system")
    rendered = renderer.render([{"role": "user", "content": "  True?\n"}], system=" Be true. ")
    read = words(renderer, rendered)
    assert [part.strip() for part in read["user"]] == ["True?"]
    assert [part.strip() for part in read["system"]] == ["Be true."]


def test_a_word_that_swallows_the_templates_space_is_the_content(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}[{{ ' ' + m['content'] }}]{% endfor %}"
    renderer = ChatRenderer(tokenizer)
    assert words(renderer, renderer.render("A", "chat"))["user"] == [" A"]


def test_no_prompt_has_two_bos(renderer_of):
    for template in ("bos", "no_system"):
        renderer = renderer_of(template)
        bos = renderer.tokenizer.bos_token_id
        for item in ("True.", [USER], [SYSTEM, USER, ANSWER]):
            ids = renderer.render(item).ids
            assert ids.count(bos) == 1
            assert ids[0] == bos


@pytest.mark.parametrize("bos", [False, True])
def test_bare_texts_are_the_tokenizers_own_ids(renderer_of, bos):
    renderer = renderer_of("chatml", bos=bos)
    text = "The city of A is in B. <|im_end|>"
    rendered = renderer.render(text)
    assert list(rendered.ids) == renderer.tokenizer(text).input_ids
    assert rendered.spans == {"content": ((int(bos), len(rendered.ids)),)}
    assert renderer.tokenizer.bos_token_id not in rendered.ids[1:]


def test_golden_tokens_of_the_tiny_tokenizer(renderer_of):
    renderer = renderer_of("chatml")
    pieces = renderer.tokenizer.convert_ids_to_tokens
    assert pieces(renderer.render("Is the city  42\n\n7?").ids) == (
        ["I", "s", "Ġthe", "Ġcity", "Ġ", "Ġ", "4", "2", "ĊĊ", "7", "?"]
    )
    turn = ["<|im_start|>", "user", "Ċ", "t", "o", "ĠA", "<|im_end|>", "Ċ"]
    header = ["<|im_start|>", "assistant", "Ċ"]
    assert pieces(renderer.render([{"role": "user", "content": "to A"}]).ids) == turn + header


def test_a_text_can_be_one_user_message(renderer_of):
    renderer = renderer_of("chatml")
    assert renderer.render(USER["content"], "chat") == renderer.render([USER])
    assert renderer.render((USER,)) == renderer.render([USER])


def test_the_header_can_be_left_out_or_forced(renderer_of):
    renderer = renderer_of("chatml")
    with_header, without = (renderer.render([USER], add_generation_prompt=b) for b in (True, False))
    assert with_header.ids[: len(without.ids)] == without.ids
    assert "header" not in without.spans
    forced = renderer.render([USER, ANSWER], add_generation_prompt=True)
    assert words(renderer, forced)["content"] == [ANSWER["content"]]
    assert forced.spans["header"][-1][1] == len(forced.ids)


@settings(max_examples=150, deadline=None)
@given(text=st.text(min_size=1, max_size=12), template=st.sampled_from(TEMPLATES))
def test_any_content_is_found_exactly_or_refused(renderer_of, text, template):
    renderer = renderer_of(template)
    try:
        read = words(renderer, renderer.render([{"role": "user", "content": text}]))
    except ConfigError:
        assert not text.strip() or text != text.strip()  # a plain text is never refused
        return
    assert read["user"] in ([text], [text.strip()])


@pytest.mark.parametrize("item", [7, None, b"text", {"role": "user"}, [1], [{"role": "user"}]])
def test_items_of_the_wrong_kind_are_named(renderer_of, item):
    with pytest.raises(ValueError, match=r"expected|neither a text nor a chat") as caught:
        renderer_of("chatml").render(item)
    assert repr(item[0] if isinstance(item, list) else item)[:10] in str(caught.value)


@pytest.mark.parametrize("content", ["", "  \n", None])
def test_empty_contents_are_refused(renderer_of, content):
    with pytest.raises(ConfigError, match=r"message 1 .assistant. has the content"):
        renderer_of("chatml").render([USER, {"role": "assistant", "content": content}])


def test_wrong_calls_say_what_is_wrong(renderer_of):
    renderer = renderer_of("chatml")
    for wrong, message in (
        (lambda: renderer.render("a", "fancy"), "'fancy'; give auto, bare or chat"),
        (lambda: renderer.render([SYSTEM, USER], system="b"), "keep one of them"),
        (lambda: renderer.render([{"role": "user", "content": [1]}]), "has a list as content"),
        (lambda: renderer.collate([]), "nothing to collate"),
        (lambda: renderer.collate([renderer.render("a")], "top"), "side = 'top'"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
            wrong()
        assert message in str(caught.value)


def test_what_a_user_can_mend_is_a_workbench_error(renderer_of, tiny_tokenizer):
    none = ChatRenderer(tiny_tokenizer("none"))
    small = ChatRenderer(tiny_tokenizer(), vocabulary=10)
    for wrong, message in (
        (lambda: renderer_of("chatml").render(" \n"), "is empty; give it words"),
        (lambda: renderer_of("chatml").render("a \ud83d b"), "half a character at 2"),
        (
            lambda: renderer_of("chatml").render([{"role": "user", "content": "\ude00"}]),
            "a lone surrogate",
        ),
        (lambda: renderer_of("chatml").render([]), "the chat is empty"),
        (
            lambda: renderer_of("chatml").render([USER], "bare"),
            "render='bare' takes a text, got list",
        ),
        (lambda: renderer_of("chatml").render("a", system="b"), "a bare text takes no system="),
        (
            lambda: renderer_of("chatml").render([{"role": "header", "content": "a"}]),
            "role 'header'",
        ),
        (lambda: none.render([USER]), "has no chat template"),
        (lambda: none.render([SYSTEM, USER]), "has no chat template"),
        (lambda: renderer_of("no_system").render([USER, USER]), "roles must alternate"),
        (lambda: renderer_of("no_system").render([SYSTEM, ANSWER]), "no user message follows"),
        (lambda: renderer_of("deaf").render([USER, SYSTEM]), "drops or repeats a content"),
    ):
        with pytest.raises(ConfigError, match=message):
            wrong()
    with pytest.raises(MismatchError, match="beyond the model's 10 embeddings"):
        small.render("True")


def test_a_content_that_the_template_rewrites_is_refused_not_guessed(renderer_of):
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSend 7."}
    with pytest.raises(ConfigError, match="rewrites a content"):
        renderer_of("thinking").render([USER, thought])


def test_a_content_that_melts_into_the_template_is_refused(renderer_of):
    with pytest.raises(ConfigError, match="not whole tokens inside the chat template"):
        renderer_of("chatml").render([{"role": "user", "content": "\nTrue?"}])


def test_a_template_that_writes_the_time_is_followed(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    template, renderer = tokenizer.chat_template, ChatRenderer(tokenizer)
    for now in ("1", "22", "1"):
        tokenizer.chat_template = now + template
        read = words(renderer, renderer.render([USER]))
        assert read["user"] == [USER["content"]]
        assert read["template"][0].startswith(now + "<")


def test_a_tokenizer_without_offsets_is_refused_for_chats_alone():
    class Slow:
        is_fast = False
        chat_template = "x"

        def __call__(self, text, **options):
            return {"input_ids": [5, 6], "special_tokens_mask": [1, 0]}

        def get_chat_template(self):
            return self.chat_template

    with pytest.raises(ConfigError, match="Slow gives no character offsets"):
        ChatRenderer(Slow()).render([USER])
    assert ChatRenderer(Slow()).render("hi").ids == (5, 6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_collate_counts_positions_over_real_tokens(renderer_of, side):
    renderer = renderer_of("chatml")
    rows = [renderer.render("True"), renderer.render([USER])]
    batch = renderer.collate(rows, side)
    for number, row in enumerate(rows):
        real = batch.attention_mask[number].bool()
        assert batch.input_ids[number][real].tolist() == list(row.ids)
        assert batch.position_ids[number][real].tolist() == list(range(len(row.ids)))
        assert batch.position_ids[number][~real].eq(0).all()
        for name, flags in batch.spans.items():
            assert not (flags[number] & ~real).any()
            expected = [i for a, b in row.spans.get(name, ()) for i in range(a, b)]
            assert batch.position_ids[number][flags[number]].tolist() == expected
    assert batch.attention_mask[0, 0 if side == "right" else -1] == 1


def test_collate_pads_a_tokenizer_that_has_no_pad(tiny_tokenizer):
    renderer = ChatRenderer(tiny_tokenizer(pad=None))
    batch = renderer.collate([Rendered((9,), {}), Rendered((8, 7), {})])
    assert batch.input_ids.tolist() == [[renderer.tokenizer.eos_token_id, 9], [8, 7]]
    assert batch.attention_mask.dtype == torch.long


def test_chats_of_one_shape_cost_one_writing_each(tiny_tokenizer, monkeypatch):
    renderer, written = ChatRenderer(tiny_tokenizer("default_system")), []
    plain = renderer.tokenizer.apply_chat_template
    monkeypatch.setattr(
        renderer.tokenizer,
        "apply_chat_template",
        lambda chat, **options: written.append(chat) or plain(chat, **options),
    )
    for number in range(50):
        renderer.render(f"Does A have {number} dollars?", "chat")
    assert len(written) == 50 + 2  # two with marks, with and without the header


@pytest.mark.real
def test_golden_tokens_of_smollm2(real_subject):
    tokenizer, render = real_subject.tokenizer, real_subject.renderer.render
    pieces = tokenizer.convert_ids_to_tokens
    words = ["The", "Ġcity", "Ġof", "ĠKrak", "Ã³", "w", "ĊĊ", "4", "2", "ĠĠ", "7", "."]
    assert pieces(render("The city of Kraków\n\n42  7.").ids) == words
    system = ["<|im_start|>", "system", "Ċ", "Be", "Ġgood", "<|im_end|>", "Ċ"]
    user = ["<|im_start|>", "user", "Ċ", "Hi", "<|im_end|>", "Ċ"]
    header = ["<|im_start|>", "ass", "istant", "Ċ"]
    chat = render([{"role": "user", "content": "Hi"}], system="Be good")
    assert pieces(chat.ids) == system + user + header


@pytest.mark.real
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
def test_smollm2_chats_are_the_templates_ids_and_read_back(real_subject, chat):
    rendered = real_subject.renderer.render(chat)
    expected = real_subject.tokenizer.apply_chat_template(
        chat, add_generation_prompt=chat[-1]["role"] != "assistant", return_dict=False
    )
    assert list(rendered.ids) == expected
    read = words(real_subject.renderer, rendered)
    for role in ("system", "user", "assistant"):
        assert read.get(role, []) == [m["content"] for m in chat if m["role"] == role]


@pytest.mark.parametrize("bos", [False, True])
def test_many_at_once_are_what_each_alone_is(renderer_of, bos):
    renderer = renderer_of("chatml", bos=bos)
    texts = ["A city", "the answer is B.", "C"]
    asked = [[{"role": "user", "content": text}] for text in texts]
    answered = [[*chat, {"role": "assistant", "content": "D to E"}] for chat in asked]
    for items in (texts, [*asked, *answered], [texts[0], asked[1]], []):
        assert renderer.render_many(items) == [renderer.render(item) for item in items]
    assert renderer.render_many(texts, "chat", False) == [
        renderer.render(text, "chat", add_generation_prompt=False) for text in texts
    ]
    for wrong in (["A", " "], [asked[0], [{"role": "user", "content": " "}]]):
        with pytest.raises(ConfigError):
            renderer.render_many(wrong)
