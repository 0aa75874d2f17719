"""The plain way as an oracle: one unpadded full forward for each request, arm and candidate."""

import numpy as np
import pytest
import torch

from workbench.registry import EDITS
from workbench.types import CandidatesRead, LayerEdit, LogitsRead, Read, Rendered, Request

WIDTH = 32


def edit_of(name, layer, dose, scope="all", seed=0, width=WIDTH, **rows):
    """A LayerEdit along a seeded random unit vector."""
    v = np.random.default_rng([seed, layer]).standard_normal(width)
    unit = (v / np.linalg.norm(v)).astype(np.float32)
    return LayerEdit(layer, name, EDITS.create(name), unit, dose, scope, rows)


def covers(term, place, prompt, spans):
    """One term of a scope, at one position of an unpadded row."""
    kind, _, rest = term.partition(":")
    if kind == "tokens":
        bounds = [part.split(":") for part in rest.split(",")]
        return any(
            place == int(a) if not b else int(a) <= place < int(b[0] or 10**9) for a, *b in bounds
        )
    if kind == "span":
        return any(a <= place < b for a, b in spans.get(rest, ()))
    return {
        "all": place > 0,
        "first": place == 0,
        "last": place >= prompt - 1,
        "prompt": 0 < place < prompt,
        "generated": place >= prompt,
    }.get(term, place > 0 and any(a <= place < b for a, b in spans.get(term, ())))


def plain_edit(edit, h, prompt, spans):
    """The edits' formulas, written again, on one unpadded row (t, d)."""
    v = torch.from_numpy(edit.v)
    here = torch.tensor(
        [
            any(covers(term, place, prompt, spans) for term in edit.scope.split("+"))
            for place in range(len(h))
        ]
    )
    along = h @ v
    if edit.name == "add":
        new = h + edit.dose * v
    elif edit.name == "ablate":
        new = h - edit.dose * along[:, None] * v
    else:
        low, high = edit.rows["floor"], edit.rows["ceiling"]
        inside = torch.maximum(torch.minimum(along, torch.tensor(high)), torch.tensor(low))
        new = h + edit.dose * (inside - along)[:, None] * v
    return torch.where(here[:, None], new, h)


def plain_forward(subject, ids, arm=(), prompt=None, spans=None):
    """Logits (t, v) and block outputs after the edits, by layer, of one unpadded row."""
    prompt = len(ids) if prompt is None else prompt
    hidden, handles = {}, []
    for layer, block in subject.blocks.items():

        def hook(module, args, output, layer=layer):
            h = output if torch.is_tensor(output) else output[0]
            row = h[0]
            for edit in arm:
                if edit.layer == layer:
                    row = plain_edit(edit, row, prompt, spans or {})
            hidden[layer] = row.clone()
            new = row[None]
            return new if torch.is_tensor(output) else (new, *output[1:])

        handles.append(block.register_forward_hook(hook))
    with torch.no_grad():
        logits = subject.model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits, hidden


def plain_candidates(subject, request, read, arm):
    """Sums in float64: at 55 nats ten additions in float32 alone are off by more than 1e-5."""
    n = len(request.ids)
    scores = []
    for candidate in read.candidates:
        logits, _ = plain_forward(subject, [*request.ids, *candidate], arm, n, request.spans)
        logprobs = logits.double().log_softmax(-1)
        score = sum(logprobs[n - 1 + place, token] for place, token in enumerate(candidate))
        if read.terminators:
            score = score + logprobs[n + len(candidate) - 1, list(read.terminators)].logsumexp(0)
        scores.append(float(score))
    return np.array(scores)


def plain_read(subject, request, read, arm):
    _, hidden = plain_forward(subject, request.ids, arm, spans=request.spans)
    rows = []
    for layer in read.layers:
        h = hidden[layer]
        if read.position == "last":
            rows.append(h[-1])
        elif read.position == "mean":
            rows.append(h[1:].mean(0))
        elif read.position == "last:body":
            rows.append(h[request.spans["body"][0][1] - 1])
        else:
            assert read.position == "all"
            rows.append(h)
    return torch.stack(rows).numpy()


def plain_answer(subject, requests, arms):
    def one(request, read, arm):
        if isinstance(read, CandidatesRead):
            return plain_candidates(subject, request, read, arm)
        if isinstance(read, Read):
            return plain_read(subject, request, read, arm)
        assert isinstance(read, LogitsRead)
        logits, _ = plain_forward(subject, request.ids, arm, spans=request.spans)
        logprobs = logits[-1].log_softmax(-1).numpy()
        return logprobs if read.keep is None else logprobs[list(read.keep)]

    return [
        [[one(request, read, arm) for read in request.reads] for request in requests]
        for arm in arms
    ]


def largest_difference(values, others):
    """Over every arm, request and read; shapes must agree."""
    worst = 0.0
    for arm, other_arm in zip(values, others, strict=True):
        for reads, other_reads in zip(arm, other_arm, strict=True):
            for value, other in zip(reads, other_reads, strict=True):
                assert value.shape == other.shape
                worst = max(worst, float(np.abs(value - other).max()))
    return worst


def spans_of(length, number=0):
    """Parts of a prompt: two user turns, one over its first token; tools in every second."""
    turns = ((0, min(2, length)), *(((3, length - 1),) if length > 4 else ()))
    tool = {} if number % 2 else {"tool": ((max(0, length - 2), length),)}
    return {"body": ((1, length - 1),), "user": turns, **tool}


def requests_of():
    """Prompts of 1 to 23 tokens with every kind of read; "1" is a prefix of "10"."""
    rng = np.random.default_rng(0)
    amounts = CandidatesRead(((60,), (61,), (60, 70), (62, 63, 64)), (12, 2))
    text = CandidatesRead((tuple(int(i) for i in rng.integers(5, 300, 9)),))
    reads = [
        (amounts,),
        (LogitsRead(), Read(layers=(0, 1, 3), position="last")),
        (amounts, LogitsRead(keep=(7, 300)), Read(layers=(3, 0), position="mean")),
        (text,),
        (Read(layers=(2,), position="last:body"), text, amounts),
        (Read(layers=(1, 2), position="all"), LogitsRead()),
        (CandidatesRead(((9,), (10,)), ()),),
    ]
    lengths = [13, 5, 23, 1, 9, 6, 5]
    return [
        Request(
            item=f"item{number}",
            condition="c",
            ids=tuple(int(i) for i in rng.integers(5, 300, length)),
            reads=own,
            spans=spans_of(length, number),
        )
        for number, (own, length) in enumerate(zip(reads, lengths, strict=True))
    ]


def arms_of(scope):
    """Unedited, and edits that differ in kind, strength, layers and number."""
    return [
        (),
        (edit_of("add", 1, 2.0, scope),),
        (edit_of("add", 1, -3.0, scope, seed=1), edit_of("add", 3, 1.5, scope)),
        (edit_of("ablate", 2, 1.0, scope),),
        (edit_of("cap", 1, 1.0, scope, floor=0.4, ceiling=float("inf")),),
        (edit_of("add", 2, 1.0, scope), edit_of("cap", 2, 0.5, scope, floor=-0.1, ceiling=0.1)),
        (edit_of("add", 1, 0.0, scope),),
    ]


@pytest.fixture
def make_edit():
    return edit_of


@pytest.fixture
def make_requests():
    return requests_of


@pytest.fixture
def parts_of():
    return spans_of


@pytest.fixture
def make_arms():
    return arms_of


@pytest.fixture
def oracle():
    return plain_answer


@pytest.fixture
def forward_plainly():
    return plain_forward


@pytest.fixture
def difference():
    return largest_difference


@pytest.fixture
def hook_count():
    def count(model):
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    return count


@pytest.fixture
def batch_with():
    """Collate rows of ids, with spans: ``body`` leaves out both ends; see ``spans_of``."""

    def collate(subject, rows, side="left"):
        rendered = [Rendered(tuple(ids), spans_of(len(ids), n)) for n, ids in enumerate(rows)]
        return subject.renderer.collate(rendered, side)

    return collate
