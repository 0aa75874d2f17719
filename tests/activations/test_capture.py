"""Capture: the caller's order whatever the batches, everything checked before the first forward."""

import importlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workbench.activations import open_activations, verify
from workbench.activations.batches import cut_batches
from workbench.activations.capture import capture
from workbench.activations.landing import to_stored
from workbench.engine.pool import parse_position, pool, token_mask
from workbench.errors import ConfigError, MismatchError, WorkbenchError
from workbench.prompts import PromptSet
from workbench.types import Batch, ModelRef, ModelStamp, Read, Rendered, Subject

DEPTH, WIDTH = 3, 4
MODULE = importlib.import_module("workbench.activations.capture")  # the name is a function


class PlainRenderer:
    """One token a character; a chat's content is what its last message says."""

    def render(self, item, **options):
        text = item if isinstance(item, str) else item[-1]["content"]
        if "unrenderable" in text:
            raise ConfigError("this text cannot be rendered")
        header = (0,) if options.get("add_generation_prompt") else ()
        return Rendered((1, *map(ord, text), *header), {"content": ((1, 1 + len(text)),)})

    def collate(self, rendered, side="left"):
        length = max(len(one.ids) for one in rendered)
        ids, mask = (torch.zeros(len(rendered), length, dtype=torch.long) for _ in range(2))
        spans = torch.zeros(len(rendered), length, dtype=torch.bool)
        for row, one in enumerate(rendered):
            start = length - len(one.ids) if side == "left" else 0
            ids[row, start : start + len(one.ids)] = torch.tensor(one.ids)
            mask[row, start : start + len(one.ids)] = 1
            for first, stop in one.spans["content"]:
                spans[row, start + first : start + stop] = True
        return Batch(ids, mask, (mask.cumsum(1) - 1).clamp(min=0) * mask, {"content": spans})


@dataclass
class CountingRunner:
    """Hidden state at layer l = [token id, position, l, 1]; counts its forwards."""

    dtype: torch.dtype = torch.float32
    batches: list = field(default_factory=list)
    spoil: float | None = None
    fail_at: int | None = None
    name = "fake"

    def capture(self, subject, batch, reads):
        if self.fail_at is not None and len(self.batches) >= self.fail_at:
            raise KeyboardInterrupt
        self.batches.append(tuple(batch.input_ids.shape))
        return [self.read(batch, read) for read in reads]

    def read(self, batch, read):
        position = parse_position(read.position)
        mask = token_mask(position, batch.attention_mask.bool(), batch.spans)
        layers = [pool(self.hidden(batch, layer), mask, position) for layer in read.layers]
        if position.kind == "all":
            return [torch.stack(row) for row in zip(*layers, strict=True)]
        return torch.stack(layers)

    def hidden(self, batch, layer):
        ones = torch.ones_like(batch.input_ids)
        parts = [batch.input_ids, batch.position_ids, layer * ones, ones]
        h = torch.stack(parts, -1).to(self.dtype)
        return h * self.spoil if self.spoil is not None and layer == 1 else h

    def answer(self, subject, requests, arms=((),), *, budget=8192, progress=None):
        raise NotImplementedError

    def generate(self, subject, prompts, **options):
        raise NotImplementedError

    def stream(self, subject, prompts, **options):
        raise NotImplementedError

    def intervene(self, subject, arms, **options):
        raise NotImplementedError


def fake_subject(dtype=torch.float32, **runner):
    return Subject(
        ref=ModelRef("fake", dtype=str(dtype).removeprefix("torch.")),
        model=SimpleNamespace(),
        tokenizer=None,
        family="fake",
        blocks={layer: torch.nn.Identity() for layer in range(DEPTH)},
        stamp=ModelStamp("fake", "fake", DEPTH, WIDTH, "t" * 16, "f" * 16),
        renderer=PlainRenderer(),
        runner=CountingRunner(dtype, **runner),
    )


def prompts_of(n=11, seed=0):
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("abcdefgh"), rng.integers(1, 30))) for _ in range(n)]
    return PromptSet.from_records(
        [{"id": f"p{row}", "text": text, "label": row % 2} for row, text in enumerate(texts)]
    )


def last_token(text, layer):
    return [ord(text[-1]), len(text), layer, 1]


@pytest.mark.parametrize("out", [None, "acts"])
@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_rows_come_back_in_the_callers_order_whatever_the_batches(tmp_path, out, budget):
    prompts, subject = prompts_of(), fake_subject()
    place = None if out is None else tmp_path / out
    acts = capture(subject, prompts, out=place, budget=budget, shard_rows=4)
    expected = [[last_token(text, layer) for text in prompts.items] for layer in range(DEPTH)]
    np.testing.assert_array_equal(acts.values, np.array(expected, np.float32))
    assert list(acts.columns["id"]) == list(prompts.ids)
    assert list(acts.columns["text"]) == list(prompts.items)
    np.testing.assert_array_equal(acts.columns["label"], prompts.columns["label"])
    assert acts.model == subject.stamp


def test_batches_fit_the_budget_and_are_sorted_by_length():
    lengths = [5, 1, 9, 3, 3, 12, 2]
    batches = list(cut_batches(lengths, 12))
    assert sorted(row for batch in batches for row in batch) == list(range(7))
    assert all(len(b) * max(lengths[r] for r in b) <= 12 or len(b) == 1 for b in batches)
    flat = [lengths[row] for batch in batches for row in batch]
    assert flat == sorted(flat)
    assert batches[0] == [1, 6, 3, 4]


def test_all_positions_keep_every_token_of_every_item(tmp_path):
    prompts, subject = prompts_of(), fake_subject()
    acts = capture(subject, prompts, position="all", layers=[2, 0], out=tmp_path, shard_rows=4)
    assert acts.layers == (2, 0)
    for row, text in enumerate(prompts.items):
        one = acts.take([row])
        assert list(one.at(0)[:, 0]) == [1, *map(ord, text)]
        assert set(one.at(2)[:, 2]) == {2}
    assert acts.offsets[-1] == sum(len(text) + 1 for text in prompts.items)


def test_several_reads_from_one_pass_equal_one_pass_each(tmp_path):
    prompts, subject = prompts_of(), fake_subject(torch.bfloat16)
    reads = ["last", Read(layers=(1,), position="mean:content"), "resid_post@all"]
    together = capture(subject, prompts, reads=reads, out=tmp_path / "many", shard_rows=4)
    assert list(together) == ["resid_post@last", "resid_post@mean:content", "resid_post@all"]
    forwards = len(subject.runner.batches)
    for name, acts in together.items():
        alone = capture(
            subject, prompts, position=name.split("@")[1], layers=acts.layers, shard_rows=4
        )
        np.testing.assert_array_equal(acts.values, alone.values)
    assert len(subject.runner.batches) == 4 * forwards
    assert [acts.dtype for acts in together.values()] == ["bfloat16", "float32", "bfloat16"]
    again = open_activations(tmp_path / "many" / "resid_post@mean-content")
    np.testing.assert_array_equal(again.values, together["resid_post@mean:content"].values)


def test_a_finished_capture_runs_no_forward(tmp_path):
    prompts = prompts_of()
    capture(fake_subject(), prompts, out=tmp_path, shard_rows=4)
    subject = fake_subject()
    acts = capture(subject, prompts, out=tmp_path, shard_rows=4)
    assert subject.runner.batches == []
    assert len(acts) == 11


def test_an_interrupted_capture_does_only_what_is_missing_and_gives_the_same_bytes(tmp_path):
    prompts = prompts_of(20)
    whole = fake_subject()
    capture(whole, prompts, out=tmp_path / "whole", shard_rows=4, budget=60)
    broken = fake_subject(fail_at=len(whole.runner.batches) // 2)
    with pytest.raises(KeyboardInterrupt):
        capture(broken, prompts, out=tmp_path / "cut", shard_rows=4, budget=60)
    kept = len(list(tmp_path.glob("cut/shards/*.h5")))
    assert 0 < kept < 5
    rest = fake_subject()
    capture(rest, prompts, out=tmp_path / "cut", shard_rows=4, budget=60)
    assert len(rest.runner.batches) < len(whole.runner.batches)
    for path in [*tmp_path.glob("whole/*.json"), *tmp_path.glob("whole/shards/*")]:
        other = tmp_path / "cut" / path.relative_to(tmp_path / "whole")
        assert path.read_bytes() == other.read_bytes(), path


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"position": "mean"}, "position: 'last' -> 'mean'"),
        ({"layers": [0]}, "layers: "),
        ({"budget": 7}, "config.budget: 8192 -> 7"),
        ({"dtype": "float16"}, "dtype: 'float32' -> 'float16'"),
        ({"shard_rows": 3}, "shards: "),
        ({"render": "bare"}, "config.render: 'auto' -> 'bare'"),
    ],
)
def test_resuming_with_other_settings_is_refused_before_any_forward(tmp_path, change, key):
    capture(fake_subject(), prompts_of(), out=tmp_path, shard_rows=4)
    subject = fake_subject()
    with pytest.raises(MismatchError) as error:
        capture(subject, prompts_of(), out=tmp_path, **{"shard_rows": 4, **change})
    assert key in str(error.value)
    assert subject.runner.batches == []


def test_resuming_with_other_prompts_labels_or_weights_is_refused(tmp_path):
    prompts = prompts_of()
    capture(fake_subject(), prompts, out=tmp_path)
    relabelled = replace(prompts, columns={"label": 1 - prompts.columns["label"]})
    for other in (prompts_of(seed=1), relabelled):
        with pytest.raises(MismatchError, match=r"config\.inputs"):
            capture(fake_subject(), other, out=tmp_path)
    subject = fake_subject()
    subject.stamp = replace(subject.stamp, fingerprint="0" * 16)
    with pytest.raises(MismatchError, match=r"model\.fingerprint"):
        capture(subject, prompts, out=tmp_path)


@pytest.mark.thorough
def test_two_writers_side_by_side_leave_what_one_leaves(tmp_path):
    prompts = prompts_of(40)
    capture(fake_subject(), prompts, out=tmp_path / "one", shard_rows=2, budget=60)

    def write(_):
        return capture(fake_subject(), prompts, out=tmp_path / "two", shard_rows=2, budget=60)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(write, range(2)))
    np.testing.assert_array_equal(both[0].values, both[1].values)
    assert verify(tmp_path / "one") == verify(tmp_path / "two")
    assert list(tmp_path.glob("two/**/.*")) == []


def test_resume_off_never_touches_what_is_there(tmp_path):
    capture(fake_subject(), prompts_of(), out=tmp_path)
    with pytest.raises(MismatchError, match="holds activations already"):
        capture(fake_subject(), prompts_of(), out=tmp_path, resume=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [0, 3]}, r"layers = \[0, 3\].*0 to 2"),
        ({"layers": [-1]}, "0 to 2"),
        ({"layers": []}, "0 to 2"),
        ({"layers": "some"}, "layers = 'some'"),
        ({"layers": [1, 1]}, "twice"),
        ({"site": "mlp_typo"}, "site 'mlp_typo'; known sites: resid_post"),
        ({"position": "final"}, "position 'final'; expected last"),
        ({"position": "mean:user"}, "item 'p0': .*no span 'user'"),
        ({"position": "mean:content[25:]"}, "item 'p0': .*no token left"),
        ({"reads": ["last", "last"]}, "named twice"),
        ({"dtype": "int8"}, "dtype 'int8'; stored dtypes: bfloat16"),
    ],
)
def test_a_wrong_wish_is_refused_before_any_forward_and_leaves_no_folder(
    tmp_path, options, message
):
    subject = fake_subject()
    with pytest.raises(ConfigError, match=message):
        capture(subject, prompts_of(), out=tmp_path / "acts", **options)
    assert subject.runner.batches == []
    assert list(tmp_path.iterdir()) == []


def test_the_last_of_many_prompts_is_checked_before_the_first_forward():
    records = [{"id": str(row), "text": "fine"} for row in range(600)]
    records[-1]["text"] = "unrenderable"
    subject = fake_subject()
    with pytest.raises(ConfigError, match="item '599': this text cannot be rendered"):
        capture(subject, PromptSet.from_records(records))
    assert subject.runner.batches == []


@pytest.mark.parametrize("out", [None, "acts"])
def test_a_row_that_is_not_finite_is_named_and_not_stored(tmp_path, out):
    subject = fake_subject(spoil=float("inf"))
    place = None if out is None else tmp_path / out
    with pytest.raises(ConfigError, match=r"not finite at layer 1 \(first item: 'p0'"):
        capture(subject, prompts_of(), out=place, shard_rows=4)
    assert list(tmp_path.glob("**/*.h5")) == []


def test_float16_storage_refuses_what_it_cannot_hold(tmp_path):
    capture(fake_subject(spoil=100.0), prompts_of(), out=tmp_path / "fits", dtype="float16")
    assert open_activations(tmp_path / "fits").dtype == "float16"
    with pytest.raises(ConfigError, match="beyond float16"):
        capture(fake_subject(spoil=1e4), prompts_of(), out=tmp_path / "not", dtype="float16")


def test_too_little_room_is_known_before_the_first_forward(tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "free_bytes", lambda _: 10)
    subject = fake_subject()
    with pytest.raises(WorkbenchError, match="needs about 528 bytes, 10 bytes are free"):
        capture(subject, prompts_of(), out=tmp_path / "acts")
    assert subject.runner.batches == []


def test_a_runner_that_changes_its_dtype_midway_is_refused(tmp_path):
    class Fickle(CountingRunner):
        def capture(self, subject, batch, reads):
            self.dtype = torch.float32 if self.batches else torch.bfloat16
            return super().capture(subject, batch, reads)

    subject = fake_subject()
    subject.runner = Fickle()
    with pytest.raises(MismatchError, match="stores bfloat16, but the model now gives float32"):
        capture(subject, prompts_of(), out=tmp_path, shard_rows=4)


def test_a_dtype_that_changes_within_a_shard_is_refused():
    class Fickle(CountingRunner):
        def capture(self, subject, batch, reads):
            self.dtype = torch.float32 if self.batches else torch.bfloat16
            return super().capture(subject, batch, reads)

    subject = fake_subject()
    subject.runner = Fickle()
    with pytest.raises(MismatchError, match=r"gave torch\.bfloat16 and now gives torch\.float32"):
        capture(subject, prompts_of(), budget=40)


@pytest.mark.parametrize(
    ("n", "length", "rows"), [(100, 4, 100), (600, 4, 300), (5000, 4, 2500), (3000, 40, 409)]
)
def test_shards_of_short_prompts_hold_more_but_two_there_are(n, length, rows):
    records = [{"id": str(row), "text": "a" * (length - 1)} for row in range(n)]
    acts = capture(fake_subject(), PromptSet.from_records(records), layers=[0])
    assert acts.manifest.shards[0] == (0, rows)


def test_prompts_beyond_what_is_kept_are_rendered_again(monkeypatch, tmp_path):
    prompts = prompts_of(600)
    expected = capture(fake_subject(), prompts, shard_rows=100)
    monkeypatch.setattr("workbench.activations.job.KEPT_TOKENS", 5000)
    acts = capture(fake_subject(), prompts, shard_rows=100)
    np.testing.assert_array_equal(acts.values, expected.values)


def test_progress_counts_items_and_never_falls(tmp_path):
    seen = []
    for _ in range(2):
        capture(
            fake_subject(),
            prompts_of(),
            out=tmp_path,
            shard_rows=4,
            budget=40,
            progress=lambda *state: seen.append(state),
        )
        assert seen[-1] == (11, 11)
        assert seen == sorted(seen)
        assert len(seen) >= 3
        seen.clear()


def test_chats_keep_their_messages_and_get_a_header_when_asked():
    chat = [{"role": "user", "content": "abc"}]
    prompts = PromptSet.from_records([{"messages": chat}])
    acts = capture(fake_subject(), prompts, add_generation_prompt=True)
    assert json.loads(acts.columns["text"][0]) == chat
    assert acts.at(0)[0, 0] == 0
    assert capture(fake_subject(), prompts).at(0)[0, 0] == ord("c")


def test_tensors_become_bits_without_loss():
    wide = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        stored, name = to_stored(wide.to(dtype))
        assert name == str(dtype).removeprefix("torch.")
        assert stored.tobytes() == wide.to(dtype).view(torch.uint8).numpy().tobytes()
    assert to_stored(wide.double())[1] == "float32"


def test_large_items_make_smaller_shards(monkeypatch):
    monkeypatch.setattr("workbench.activations.job.SHARD_BYTES", 3 * DEPTH * WIDTH * 4)
    acts = capture(fake_subject(), prompts_of())
    assert acts.manifest.shards == ((0, 3), (3, 6), (6, 9), (9, 11))


@pytest.mark.parametrize("position", ["last", "mean:content", "all", "offset:-2"])
def test_the_hook_engine_gives_what_each_prompt_alone_gives(subject_of, family, position, tmp_path):
    subject = subject_of(family)
    texts = ["A city is true.", "The answer of B is not a city in the end", "C", "you send D to E"]
    prompts = PromptSet.from_records([{"text": text + " and on"} for text in texts])
    acts = capture(subject, prompts, position=position, out=tmp_path, shard_rows=3)
    for row in range(len(texts)):
        alone = capture(subject, prompts.take([row]), position=position)
        np.testing.assert_allclose(acts.take([row]).values, alone.values, atol=2e-5)


def test_a_prompt_beyond_the_context_is_refused_by_name(make_subject, monkeypatch):
    """A rotary model gave a state all the same, of places that it never learned."""
    subject = make_subject("qwen3")
    monkeypatch.setattr(subject.model.config, "max_position_embeddings", 16)
    rows = [{"id": "short", "text": "A"}, {"id": "long", "text": "A " * 40}]
    with pytest.raises(ConfigError, match=r"item 'long' has \d+ tokens .* over the 16"):
        capture(subject, PromptSet.from_records(rows), layers=[1])
