"""torch.compile ignores hooks that come after it: every order must act, or raise."""

import pytest
import torch

from workbench.engine.hooks import HookRunner
from workbench.errors import WorkbenchError
from workbench.types import Read

pytestmark = pytest.mark.thorough

RUNNER = HookRunner()
IDS = torch.tensor([[7, 8, 9, 10, 11], [20, 21, 22, 23, 24]])
COMPILE = {"backend": "eager", "fullgraph": False}


@pytest.fixture(autouse=True)
def fresh_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def logits_of(subject):
    with torch.no_grad():
        return subject.model(IDS, attention_mask=torch.ones_like(IDS), use_cache=False).logits


def edited(subject, edit):
    with RUNNER.intervene(subject, [(edit,)]):
        return logits_of(subject)


def compile_forwards(subject):
    for block in subject.blocks.values():
        block.forward = torch.compile(block.forward, **COMPILE)


def compile_blocks(subject):
    for block in subject.blocks.values():
        block.compile(**COMPILE)


@pytest.mark.parametrize("compile_it", [compile_forwards, compile_blocks])
@pytest.mark.parametrize("ran", [False, True], ids=["fresh", "ran before"])
def test_edits_and_captures_of_compiled_blocks_act(
    compile_it, ran, make_subject, subject_of, make_edit, batch_with
):
    plain, subject = subject_of("qwen3"), make_subject("qwen3")
    compile_it(subject)
    if ran:
        logits_of(subject)
    for dose in (4.0, -2.0):
        edit = make_edit("add", 1, dose)
        torch.testing.assert_close(edited(subject, edit), edited(plain, edit))
    torch.testing.assert_close(logits_of(subject), logits_of(plain))
    batch = batch_with(subject, IDS.tolist())
    reads = [Read(layers=(0, 1, 3)), Read("resid_pre", (2,))]
    for value, expected in zip(
        RUNNER.capture(subject, batch, reads), RUNNER.capture(plain, batch, reads), strict=True
    ):
        torch.testing.assert_close(value, expected)
    with pytest.raises(WorkbenchError, match=r"attention and MLP of block 1 never ran as a module"):
        RUNNER.capture(subject, batch, [Read("attn_out", (1,))])


def compile_method(subject):
    subject.model.forward = torch.compile(subject.model.forward, **COMPILE)


def compile_model(subject):
    subject.model.compile(**COMPILE)


@pytest.mark.parametrize("compile_it", [compile_method, compile_model])
def test_a_model_compiled_as_a_whole_raises(compile_it, make_subject, subject_of, make_edit):
    plain, subject = subject_of("qwen3"), make_subject("qwen3")
    compile_it(subject)
    torch.testing.assert_close(logits_of(subject), logits_of(plain))
    edit = make_edit("add", 1, 4.0)
    with pytest.raises(WorkbenchError, match="compiled as a whole"):
        edited(subject, edit)
    torch.testing.assert_close(logits_of(subject), logits_of(plain))


def test_a_read_that_never_happened_is_an_error(make_subject, batch_with):
    subject = make_subject("qwen3")
    subject.blocks[1] = torch.nn.Identity()  # stands nowhere in the model
    with pytest.raises(WorkbenchError, match=r"block 1 of .* never ran as a module"):
        RUNNER.capture(subject, batch_with(subject, IDS.tolist()), [Read(layers=(1, 2))])
