"""Planted faults: each is caught by the check that is there for it, and by no other."""

import copy
import dataclasses

import pytest
import torch
from transformers.cache_utils import DynamicLayer

from workbench.engine import batches, course
from workbench.engine.blocks import hidden_of, watching
from workbench.engine.doctor import doctor, use_verdict
from workbench.engine.doctor_probe import inputs_of
from workbench.engine.edits import LiveEdits
from workbench.engine.forward import run
from workbench.engine.hooks import HookRunner
from workbench.errors import DoctorError
from workbench.types import Rendered

pytestmark = pytest.mark.thorough


def found(subject, level="full"):
    """Names of the failed checks, and of those not run; a report with failed ones refuses."""
    report = doctor(subject, level=level, shortcuts=())
    names = {check.name for check in report.failed}
    if names:
        with pytest.raises(DoctorError, match=report.failed[0].name):
            report.raise_if_failed()
    return names, {check.name for check in report.checks if check.passed is None}


def failed(subject, level="full"):
    return found(subject, level)[0]


@pytest.fixture
def breakable(subject_of):
    """A copy of the session's tiny model, to break at will."""
    return lambda *given: copy.deepcopy(subject_of(*given))


@pytest.fixture(params=["qwen3", "gpt2"])
def kind(request):
    """Rotary and learned positions; blocks that return a tensor."""
    return request.param


def bypass(block):
    """Let the model call the block's forward by itself, as some compilers do: no hook fires."""
    kind = type(block)
    block.__class__ = type("Bypassed", (kind,), {"__call__": kind.forward})


@pytest.mark.parametrize("level", ["full", "quick"])
def test_a_hook_that_never_fires(level, kind, breakable):
    subject = breakable(kind)
    bypass(subject.blocks[2])
    names, left = found(subject, level)
    assert names == {"hooks"}
    assert {"last block", "edits"} <= left


@pytest.mark.parametrize("layer", [0, 3])
def test_a_hook_that_never_fires_on_an_end_block(layer, breakable):
    subject = breakable("qwen3")
    bypass(subject.blocks[layer])
    assert failed(subject) == failed(subject, "quick") == {"hooks"}


@pytest.mark.parametrize("level", ["full", "quick"])
def test_a_cache_whose_past_is_lost(level, family, breakable, monkeypatch):
    subject = breakable(family)
    update = DynamicLayer.update

    def forget(self, key_states, value_states, *args, **kwargs):
        keys, values = update(self, key_states, value_states, *args, **kwargs)
        past = values.shape[-2] - value_states.shape[-2]
        values = values.clone()
        values[..., :past, :] = 0
        return keys, values

    monkeypatch.setattr(DynamicLayer, "update", forget)
    assert failed(subject, level) == {"cache"}


@dataclasses.dataclass
class Doubling:
    """A renderer that puts a BOS before what has one already."""

    own: object
    kind: str

    def render(self, item, **options):
        rendered = self.own.render(item, **options)
        if (self.kind == "bare") != isinstance(item, str):
            return rendered
        return Rendered((self.own.tokenizer.bos_token_id, *rendered.ids), rendered.spans)

    def collate(self, rendered, side="left"):
        return self.own.collate(rendered, side)


@pytest.mark.parametrize("level", ["full", "quick"])
@pytest.mark.parametrize("kind", ["bare", "chat"])
def test_a_doubled_bos(kind, level, breakable):
    subject = breakable("llama")
    subject.renderer = Doubling(subject.renderer, kind)
    assert failed(subject, level) == {"tokens"}
    assert "two BOS" in doctor(subject, level="quick").failed[0].detail


def test_a_bos_that_the_tokenizer_would_write_and_the_renderer_leaves_out(breakable):
    subject = breakable("llama")
    own = subject.renderer

    class Losing(Doubling):
        def render(self, item, **options):
            rendered = own.render(item, **options)
            return Rendered(rendered.ids[1:], {})

    subject.renderer = Losing(own, "bare")
    assert failed(subject) == {"tokens"}


class Shifting(Doubling):
    """A renderer whose padded rows stand one position too far to the right."""

    def render(self, item, **options):
        return self.own.render(item, **options)

    def collate(self, rendered, side="left"):
        batch = self.own.collate(rendered, side)
        padded = (batch.attention_mask == 0).any(1)
        shifted = batch.position_ids + padded[:, None] * batch.attention_mask
        return dataclasses.replace(batch, position_ids=shifted)


def test_positions_of_padded_prompts_off_by_one(kind, breakable):
    subject = breakable(kind)
    subject.renderer = Shifting(subject.renderer, "")
    assert failed(subject) == {"padding"}
    assert failed(subject, "quick") == {"cache"}


def test_positions_of_padded_requests_off_by_one(breakable, monkeypatch):
    def shifted(mask):
        padded = (mask == 0).any(1)
        return (mask.cumsum(1) - 1).clamp(min=0) * mask + padded[:, None] * mask

    monkeypatch.setattr("workbench.engine.forward.positions_of", shifted)
    assert failed(breakable("gpt2")) == {"padding", "answers"}
    assert failed(breakable("qwen3")) == {"padding"}  # rotary: whole rows may shift unseen


def test_a_forward_without_positions_under_padding(breakable, monkeypatch):
    subject = breakable("gpt2")
    monkeypatch.setattr("workbench.engine.forward._takes_positions", lambda _forward: False)
    assert "padding" in failed(subject)


class Aliasing(HookRunner):
    """Keeps references to block outputs and reads them when the forward is over."""

    def capture(self, subject, batch, reads):
        kept = {}
        with torch.no_grad(), watching(subject, sorted(subject.blocks), kept.__setitem__):
            run(subject, inputs_of(batch))
        real = batch.attention_mask.bool()
        made = []
        for read in reads:
            h = [hidden_of(kept[layer]) for layer in read.layers]
            if read.position == "last":
                made.append(torch.stack([one[:, -1] for one in h]))
            else:
                made.append(
                    [torch.stack([o[row][keep] for o in h]) for row, keep in enumerate(real)]
                )
        return made


class PostNorm(HookRunner):
    """Gives the last block's output after the final norm, as output_hidden_states does."""

    def capture(self, subject, batch, reads):
        made = super().capture(subject, batch, reads)
        norm, last = subject.model.model.norm, max(subject.blocks)
        for read, values in zip(reads, made, strict=True):
            if last in read.layers:
                for layers in values if isinstance(values, list) else [values]:
                    place = read.layers.index(last)
                    layers[place] = norm(layers[place]).detach()
        return made


class OneOff(HookRunner):
    """Numbers layers as output_hidden_states does: entry l is the input of block l."""

    def capture(self, subject, batch, reads):
        lower = [
            dataclasses.replace(read, layers=tuple(max(layer - 1, 0) for layer in read.layers))
            for read in reads
        ]
        return super().capture(subject, batch, lower)


def test_a_capture_that_aliases_what_is_edited_later(kind, breakable):
    subject = breakable(kind)
    subject.runner = Aliasing()
    assert failed(subject) == {"capture"}


def test_a_capture_after_the_final_norm(breakable):
    subject = breakable("qwen3")
    subject.runner = PostNorm()
    assert failed(subject) == {"capture", "last block"}
    (first, _) = doctor(subject, shortcuts=()).failed
    assert "block 3 " in first.detail


def test_a_capture_that_is_one_layer_off(kind, breakable):
    subject = breakable(kind)
    subject.runner = OneOff()
    assert failed(subject) == {"capture", "last block"}


def test_a_block_list_that_lacks_the_last_block(kind, breakable):
    subject = breakable(kind)
    del subject.blocks[3]
    assert failed(subject) == {"last block"}


def idle_at(layer, monkeypatch, *, counts):
    """Let edits of one block do nothing, unseen by the log or counted all the same."""
    apply = LiveEdits.apply

    def idle(self, number, h, current):
        if number != layer:
            return apply(self, number, h, current)
        if counts:
            apply(self, number, h, current)
        return h

    monkeypatch.setattr(LiveEdits, "apply", idle)


@pytest.mark.parametrize("counts", [True, False])
def test_an_edit_that_does_nothing_on_one_block(counts, kind, breakable, monkeypatch):
    subject = breakable(kind)
    idle_at(2, monkeypatch, counts=counts)
    names, left = found(subject)
    assert names == {"edits"}
    assert "answers" in left


@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("level", ["full", "quick"])
def test_an_edit_that_never_reaches_an_end_block(layer, level, breakable, monkeypatch):
    subject = breakable("qwen3")
    idle_at(layer, monkeypatch, counts=False)
    assert failed(subject, level) == {"edits"}


@pytest.mark.parametrize("level", ["full", "quick"])
@pytest.mark.parametrize(("peak", "rest_runs"), [(36_000.0, True), (1e6, False)])
def test_a_format_that_overflows(peak, rest_runs, level, breakable):
    from workbench.models import read_checkpoint

    base = breakable("qwen3")
    subject = read_checkpoint(base.ref.base, dtype="float16", device="cpu")
    subject.runner = base.runner
    with torch.no_grad():
        subject.model.get_input_embeddings().weight[:, 5] = peak
    names, left = found(subject, level)
    assert names == {"overflow"}
    assert ("last block" in left) is not rest_runs


@pytest.fixture
def adapted(breakable, tiny_adapter, tmp_path):
    from workbench.models import read_checkpoint

    base = breakable("qwen3")
    subject = read_checkpoint(
        base.ref.base, adapter=str(tiny_adapter(tmp_path, base.ref.base)), dtype="float32"
    )
    subject.runner = base.runner
    return subject


def test_an_adapter_that_merges_into_something_else(adapted, monkeypatch):
    from peft.tuners.lora.layer import Linear

    delta = Linear.get_delta_weight
    monkeypatch.setattr(
        Linear, "get_delta_weight", lambda self, adapter: 1.05 * delta(self, adapter)
    )
    assert failed(adapted) == {"merge"}


def test_an_adapter_that_does_nothing(adapted):
    with torch.no_grad():
        for name, weight in adapted.model.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    assert failed(adapted) == {"adapter"}


def test_an_engine_whose_answers_are_not_the_models(breakable):
    subject = breakable()

    class Wrong(HookRunner):
        def answer(self, subject, requests, arms=((),), **options):
            answered = super().answer(subject, requests, arms, **options)
            answered.values[1][0][1] += 0.5
            return answered

    subject.runner = Wrong()
    assert failed(subject) == {"answers"}


def test_a_trunk_that_is_not_the_models_own(breakable, monkeypatch):
    own = course.run_trunk

    def scaled(*args, **kwargs):
        trunk = own(*args, **kwargs)
        return dataclasses.replace(trunk, output=1.1 * trunk.output)

    monkeypatch.setattr(course, "run_trunk", scaled)
    report = doctor(breakable("qwen3"))
    assert report.ok
    assert report.disabled == {"trunk"}


def test_candidates_at_shifted_positions(breakable, monkeypatch):
    own = course.cached_continuations

    def shifted(*args, **kwargs):
        for one in own(*args, **kwargs):
            inputs = dataclasses.replace(one.inputs, positions=one.inputs.positions + 1)
            yield dataclasses.replace(one, inputs=inputs)

    monkeypatch.setattr(course, "cached_continuations", shifted)
    report = doctor(breakable("qwen3"))
    assert report.ok
    assert report.disabled == {"candidates"}


def test_prompts_that_share_one_token_less_than_was_thought(breakable, monkeypatch):
    own = batches.shared_prefixes
    monkeypatch.setattr(
        batches, "shared_prefixes", lambda rows: [(length + 1, rest) for length, rest in own(rows)]
    )
    report = doctor(breakable("qwen3"))
    assert report.ok
    assert report.disabled == {"prefix"}


def test_a_module_that_mixes_rows(breakable):
    subject = breakable("qwen3")
    subject.blocks[1].register_forward_hook(lambda _m, _a, h: h + h.std(0, correction=0) + h.sum(0))
    assert {"batch", "padding"} <= {check.name for check in doctor(subject).failed}


@dataclasses.dataclass(frozen=True)
class Switched(HookRunner):
    """An engine with two shortcuts, of which some are wrong, alone or only together."""

    shortcuts: frozenset = frozenset({"trunk", "last"})
    wrong: frozenset = frozenset({"trunk"})

    def answer(self, subject, requests, arms=((),), **options):
        answered = HookRunner(frozenset()).answer(subject, requests, arms, **options)
        if self.wrong <= self.shortcuts:
            answered.values[1][1][0][:] += 0.1
        return answered


def test_a_broken_shortcut_is_switched_off_and_the_model_kept(breakable):
    subject = breakable()
    subject.runner = Switched()
    report = doctor(subject)
    assert report.ok
    assert report.disabled == {"trunk"}
    assert {check.name: check.passed for check in report.shortcuts} == {
        "trunk": False,
        "last": True,
        "together": True,
    }
    assert "trunk OFF" in report.text()
    use_verdict(subject, report)
    assert subject.runner.shortcuts == {"last"}
    assert not doctor(subject).disabled


def test_shortcuts_that_are_wrong_only_together_are_all_switched_off(breakable):
    subject = breakable()
    subject.runner = Switched(wrong=frozenset({"trunk", "last"}))
    report = doctor(subject)
    assert report.ok
    assert report.disabled == {"trunk", "last"}


def test_only_the_shortcuts_asked_for_are_tried(breakable):
    subject = breakable()
    subject.runner = Switched()
    assert not doctor(subject, shortcuts=()).shortcuts
    report = doctor(subject, shortcuts=["last"])
    assert {check.name for check in report.shortcuts} == {"last", "together"}
    assert not report.disabled


def test_a_check_that_raises_fails_with_the_message(breakable, monkeypatch):
    subject = breakable()

    def broken(*args, **kwargs):
        raise RuntimeError("the cache has no such layer\nand more")

    subject.model.generate = broken
    report = doctor(subject)
    assert {check.name for check in report.failed} == {"cache"}
    assert report.failed[0].detail == "RuntimeError: the cache has no such layer"
