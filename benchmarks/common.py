"""What the benchmarks share: models, prompts, timing side by side, and the JSON line."""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import json
import os
import platform
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

import workbench as wb
from workbench.models.families import find_blocks
from workbench.models.render import ChatRenderer
from workbench.models.stamp import stamp_of
from workbench.prompts import PromptSet
from workbench.provenance import git_state, package_versions
from workbench.registry import ENGINES
from workbench.types import Batch, ModelRef, Rendered, Subject

PEERS = ("bare", "hf", "nnsight", "lens", "plain", "keep1", "sequential", "candidate", "cached")
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
"""Largest difference of a vector from the peer's, as a fraction of its norm."""
PEER_ERRORS = (
    *(ImportError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError),
    *(OSError, NotImplementedError),
)
"""What a peer may raise; ours may raise nothing."""
SEED = 20_260_101
LONG = 20.0
"""A first run of so many seconds counts among the timed ones: warming up is a small part of it."""
_WORDS = """
river stone garden winter letter window market silver bridge forest engine summer people
water music paper number answer friend doctor village mountain station kitchen animal
picture morning evening teacher student country history science simple quiet strong narrow
bright early late often never always under over between through carry follow gather listen
measure travel write build open close begin finish
"""
WORDS = _WORDS.split()


@dataclass(frozen=True)
class Options:
    """The command line."""

    model: str
    device: str
    dtype: str
    quick: bool
    peers: tuple[str, ...]
    json: bool
    out: Path | None
    blocks: int | None
    repeats: int
    prompts: Mapping[str, int]
    """By workload; "" for the others."""
    threads: int | None
    workloads: tuple[str, ...]
    compile: tuple[str, ...]
    """Workloads that are run with compiled blocks too."""

    def count(self, workload: str, default: int) -> int:
        """How many prompts a workload gets."""
        return self.prompts.get(workload, self.prompts.get("", default))


def options_of(description: str, workloads: Sequence[str], argv: Sequence[str] | None) -> Options:
    """Read the command line that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--model", default="smollm2", help="smollm2, random:qwen3-32b, tiny, or a model folder")
    add("--device", default="auto")
    add("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    add("--quick", action="store_true", help="small inputs, one timed run")
    add("--peers", default="all", help=f"all, none, or a list of {','.join(PEERS)}")
    add("--json", action="store_true", help="print the JSON line alone")
    add("--out", type=Path, help="also write the JSON there")
    add("--blocks", type=int, help="blocks of a random model")
    add("--repeats", type=int, help="timed runs of each; medians count")
    add("--prompts", default="", help="how many, for all or by workload: 12 or 12,W8=3")
    add("--threads", type=int, help="of the processor; 1 where others use the machine")
    add("--compile", default="", help="capture: workloads to run with compiled blocks too")
    add("--workloads", default=",".join(workloads), help="which to run")
    found = parser.parse_args(argv)
    chosen = {"all": PEERS, "none": ()}.get(found.peers, tuple(found.peers.split(",")))
    wanted = tuple(found.workloads.split(","))
    counts = [part.rpartition("=") for part in found.prompts.split(",") if part]
    for name, known in [*((p, PEERS) for p in chosen), *((w, workloads) for w in wanted)]:
        if name not in known:
            parser.error(f"{name!r} is unknown; known: {', '.join(known)}")
    return Options(
        model=found.model,
        device=found.device,
        dtype=found.dtype,
        quick=found.quick,
        peers=chosen,
        json=found.json,
        out=found.out,
        blocks=found.blocks,
        repeats=found.repeats or (1 if found.quick else 3),
        prompts={name: int(count) for name, _, count in counts},
        threads=found.threads,
        workloads=wanted,
        compile=tuple(found.compile.split(",")),
    )


# --- models ---------------------------------------------------------------------------------------


def open_subject(options: Options, *, small_dtype: str = "auto") -> Subject:
    """Open the model under test; ``small_dtype`` is what ``auto`` means on a CPU."""
    quiet_libraries()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    auto = small_dtype if device_of(options) == "cpu" else "bfloat16"
    dtype = auto if options.dtype == "auto" else options.dtype
    if options.model == "tiny":
        return _tiny(options, dtype)
    if options.model.startswith("random:"):
        return _random(options, "bfloat16" if dtype == "auto" else dtype)
    return wb.load(options.model, dtype=dtype, device=options.device)


@contextmanager
def compiled_blocks(subject: Subject) -> Iterator[None]:
    """Compile the blocks one by one, as a user would; they are as before afterwards."""
    torch._dynamo.config.recompile_limit = 64
    for block in subject.blocks.values():
        block.forward = torch.compile(block.forward, dynamic=True)
    try:
        yield
    finally:
        for block in subject.blocks.values():
            del block.forward


def device_of(options: Options) -> str:
    """Return the device's kind, as a word."""
    if options.device != "auto":
        return options.device.split(":")[0]
    return "cuda" if torch.cuda.is_available() else "cpu"


def quiet_libraries() -> None:
    """Keep progress bars and advice of other libraries out of the output."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _tiny(options: Options, dtype: str) -> Subject:
    tokenizer = trained_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=options.blocks or 12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=False,
    )
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        own = "float32" if dtype == "auto" else dtype
        subject = wb.load(folder, dtype=own, device=options.device)
    subject.ref = replace(subject.ref, base="tiny")
    subject.stamp = replace(subject.stamp, key="tiny")
    return subject


def _random(options: Options, dtype: str) -> Subject:
    """Build a Qwen3-32B-shaped model with random weights, straight on the device."""
    if options.model != "random:qwen3-32b":
        raise SystemExit(f"--model {options.model}: the random shape known is random:qwen3-32b")
    tokenizer = trained_tokenizer()
    config = transformers.Qwen3Config(
        vocab_size=151_936,
        hidden_size=5120,
        intermediate_size=25_600,
        num_hidden_layers=options.blocks or 64,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=False,
        architectures=["Qwen3ForCausalLM"],
    )
    torch.manual_seed(SEED)
    with torch.device(device_of(options)):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    return _subject(model.eval(), tokenizer, ModelRef(base=options.model, dtype=dtype))


def _subject(model: Any, tokenizer: Any, ref: ModelRef) -> Subject:
    return Subject(
        ref=ref,
        model=model,
        tokenizer=tokenizer,
        family=str(model.config.model_type),
        blocks=find_blocks(model),
        stamp=stamp_of(model, tokenizer, ref),
        renderer=ChatRenderer(
            tokenizer,
            device=lambda: model.get_input_embeddings().weight.device,
            vocabulary=model.config.vocab_size,
        ),
        runner=ENGINES.create("hooks"),
    )


TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def trained_tokenizer() -> Any:
    """Train a byte-level BPE on the shipped statements, for models that bring no tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    spoken = [" ".join(WORDS)] * 8
    backend.train_from_iterator([*_statement_texts(), *spoken], trainer)
    folder = Path(tempfile.mkdtemp(prefix="workbench-bench-"))  # some peers ask for its folder
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


# --- prompts --------------------------------------------------------------------------------------


def _statement_texts() -> list[str]:
    from workbench.library import open_prompts

    return [str(item) for item in open_prompts("statements").items]


def statements(subject: Subject, n: int, shortest: int = 12, longest: int = 28) -> PromptSet:
    """Return shipped statements of 12 to 28 tokens; short ones stand two by two."""
    texts = _statement_texts()
    lengths = [len(subject.renderer.render(text).ids) for text in texts]
    found: list[str] = []
    row = 0
    while len(found) < n:
        first, second = row % len(texts), (row * 7 + 1 + row // len(texts)) % len(texts)
        alone = row % 3 == 0 and shortest <= lengths[first] <= longest
        if alone:
            found.append(texts[first])
        elif shortest <= lengths[first] + lengths[second] <= longest:
            found.append(f"{texts[first]} {texts[second]}")
        row += 1
    return PromptSet.from_records([{"text": text} for text in found], source="statements")


def words_of(subject: Subject, tokens: int, rng: np.random.Generator) -> str:
    """Return a run of drawn words that is about ``tokens`` long."""
    drawn = " ".join(rng.choice(WORDS, tokens))
    coded = subject.tokenizer(drawn, add_special_tokens=False, return_offsets_mapping=True)
    ends = [end for _, end in coded["offset_mapping"]]
    return drawn[: ends[min(tokens, len(ends)) - 1]].strip()


def chats(subject: Subject, n: int, tokens: int = 1024, prompt: int = 300) -> PromptSet:
    """Return chats of about ``tokens`` tokens, whose first ``prompt`` are the user's."""
    rng = np.random.default_rng(SEED)
    rows = []
    for _ in range(n):
        turns = [("user", prompt - 16), ("assistant", tokens - prompt - 8)]
        messages = [{"role": r, "content": words_of(subject, size, rng)} for r, size in turns]
        rows.append({"messages": messages})
    return PromptSet.from_records(rows, source="drawn chats")


def token_rows(subject: Subject, n: int, tokens: int, shared: int = 0) -> list[tuple[int, ...]]:
    """Return n rows of exactly ``tokens`` ids, the first ``shared`` the same in all."""
    rng = np.random.default_rng(SEED)

    def drawn(size: int) -> list[int]:
        text = " ".join(rng.choice(WORDS, size))
        return list(subject.tokenizer(text, add_special_tokens=False)["input_ids"])[:size]

    start = drawn(shared) if shared else []
    return [tuple(start + drawn(tokens - shared)) for _ in range(n)]


def batches_of(
    subject: Subject, rendered: Sequence[Rendered], *, rows: int, budget: int, side: str
) -> list[tuple[list[int], Batch]]:
    """Cut rendered prompts, sorted by length, into batches of at most so many rows and tokens."""
    order = sorted(range(len(rendered)), key=lambda row: len(rendered[row].ids))
    found: list[list[int]] = []
    for row in order:
        longest = len(rendered[row].ids)
        if not found or len(found[-1]) >= rows or (len(found[-1]) + 1) * longest > budget:
            found.append([])
        found[-1].append(row)
    collate = subject.renderer.collate
    return [(part, collate([rendered[row] for row in part], side)) for part in found]


# --- timing side by side --------------------------------------------------------------------------


@dataclass
class Timing:
    """Wall and processor seconds of every timed run."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return median(self.wall)

    @property
    def cpu_seconds(self) -> float:
        return median(self.cpu)


@dataclass
class Compared:
    """Outputs and times of ours and of every peer that ran; why the others did not."""

    outputs: dict[str, Any]
    times: dict[str, Timing]
    reasons: dict[str, str]
    peak: dict[str, int]
    """Largest device memory beyond what was held before the run, in bytes; CUDA alone."""

    def ratio(self, peer: str) -> float | None:
        """How many times faster than the peer ours is."""
        if peer not in self.times:
            return None
        return rounded(self.times[peer].seconds / self.times["ours"].seconds)

    def cpu_ratio(self, peer: str) -> float | None:
        """The same in processor seconds, which other programs on the machine disturb less."""
        if peer not in self.times:
            return None
        return rounded(self.times[peer].cpu_seconds / self.times["ours"].cpu_seconds)


def compare(
    runs: Mapping[str, Callable[[], Any]], repeats: int, *, skipped: Mapping[str, str] | None = None
) -> Compared:
    """Run everything once for its output, then time in alternating order.

    Raises:
        Exception: whatever ours raises; a peer's error becomes its reason.
    """
    found = Compared({}, {}, dict(skipped or {}), {})
    for name, run in runs.items():
        _clear()
        held = _allocated()
        try:
            found.outputs[name], wall, cpu = _timed(run)
        except PEER_ERRORS as error:
            if name == "ours":
                raise
            found.reasons[name] = f"{type(error).__name__}: {str(error).strip()[:200]}"
            continue
        found.times[name] = Timing([wall], [cpu]) if wall > LONG else Timing()
        if torch.cuda.is_available():
            found.peak[name] = torch.cuda.max_memory_allocated() - held
        log(f"    {name}: {wall:.3f} s the first time")
    names = list(found.times)
    for number in range(repeats):
        for name in names if number % 2 == 0 else reversed(names):
            if len(found.times[name].wall) < repeats:
                _clear()
                _, wall, cpu = _timed(runs[name])
                found.times[name].wall.append(wall)
                found.times[name].cpu.append(cpu)
                log(f"    {name}: {wall:.3f} s")
    return found


def _timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    output = run()
    _sync()
    return output, time.perf_counter() - wall, time.process_time() - cpu


def _clear() -> None:
    gc.collect()
    _sync()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _allocated() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


# --- agreement ------------------------------------------------------------------------------------


def vector_gap(ours: Tensor | np.ndarray, theirs: Tensor | np.ndarray) -> tuple[float, float]:
    """Return the largest difference, absolute and as a fraction of a vector's norm."""
    mine, other = (torch.as_tensor(values).float() for values in (ours, theirs))
    delta = mine - other
    relative = delta.norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-12)
    return float(delta.abs().max()), float(relative.max())


def verdict(gap: float, limit: float) -> dict[str, Any]:
    """Say whether two ways gave the same numbers; `finish` fails a run in which they did not."""
    return {"tolerance": limit, "agrees": bool(gap <= limit)}


# --- peers that wrap the model --------------------------------------------------------------------


@functools.cache
def wrap_nnsight(subject: Subject) -> Any:
    """Wrap the same model object."""
    from nnsight import TransformersModel

    return TransformersModel(
        subject.model, tokenizer=subject.tokenizer, task="text-generation", dispatch=True
    )


@functools.cache
def wrap_lens(subject: Subject) -> Any:
    """Wrap a copy: the bridge rewrites the model that it is given."""
    from transformer_lens.model_bridge import TransformerBridge

    twin = copy.deepcopy(subject.model)
    name = {"llama": "HuggingFaceTB/SmolLM2-135M-Instruct", "qwen3": "Qwen/Qwen3-32B"}
    return TransformerBridge.boot_transformers(
        name[subject.family],
        hf_model=twin,
        tokenizer=copy.deepcopy(subject.tokenizer),
        dtype=twin.dtype,
        device=twin.device,
    )


# --- report ---------------------------------------------------------------------------------------


def rounded(value: float) -> float:
    """Keep four figures."""
    return float(f"{value:.4g}")


def log(text: str) -> None:
    """Say how far the run is, beside the results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def measured(workload: str) -> Iterator[None]:
    """Say that a workload begins and how long it took."""
    log(f"{workload} ...")
    start = time.perf_counter()
    yield
    log(f"{workload} took {time.perf_counter() - start:.0f} s")


def machine(subject: Subject) -> dict[str, Any]:
    """Describe what the numbers were measured on."""
    device = subject.model.device
    found: dict[str, Any] = {
        "device": str(device),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [rounded(value) for value in os.getloadavg()],
        "model": subject.ref.base,
        "blocks": subject.n_layers,
        "width": subject.width,
        "dtype": subject.ref.dtype,
    }
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found.update(ceilings(device))
    return found


def ceilings(device: torch.device) -> dict[str, float]:
    """Measure the card: a large bf16 product on random data, and a copy (bytes read + written)."""
    n = 8192
    left, right = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = _best(lambda: left @ right)
    source = torch.randn(1 << 30, device=device, dtype=torch.bfloat16)
    target = torch.empty_like(source)
    moved = _best(lambda: target.copy_(source))
    bytes_moved = 2 * source.numel() * source.element_size()
    return {
        "bf16_tflops": rounded(2 * n**3 / product / 1e12),
        "copy_tb_per_s": rounded(bytes_moved / moved / 1e12),
    }


def _best(run: Callable[[], Any]) -> float:
    spent = []
    for _ in range(12):
        _sync()
        start = time.perf_counter()
        run()
        _sync()
        spent.append(time.perf_counter() - start)
    return median(spent[2:])


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def keep(options: Options, found: Mapping[str, Any]) -> None:
    """Write what is measured so far, lest a run that is cut short lose it."""
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def finish(options: Options, subject: Subject, found: Mapping[str, Any]) -> int:
    """Print a table and, as the last line, the JSON object; 1 where outputs disagree, else 0."""
    result = {
        **found,
        "machine": machine(subject),
        "versions": {**package_versions(), "python": platform.python_version(), **git_state()},
        "command": re.sub(r" --out[ =]\S+", "", " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])),
    }
    if not options.json:
        for name, row in found.items():
            print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in row.items()))
    keep(options, result)
    print(json.dumps(result), flush=True)
    differing = [name for name, row in found.items() if not _agrees(row)]
    if differing:
        log(f"ours and a peer gave different numbers in {', '.join(differing)}")
    return 1 if differing else 0


def _agrees(row: Any) -> bool:
    if not isinstance(row, Mapping):
        return True
    return row.get("agrees", True) is True and all(_agrees(part) for part in row.values())
