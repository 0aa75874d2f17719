"""Every reference resolves to the right weights, and every bad one says what to do."""

import json
import shutil
import socket
from pathlib import Path

import httpx
import pytest
import torch
from huggingface_hub import errors as hub
from safetensors.torch import load_file, save_file

from workbench.errors import (
    ConfigError,
    FormatError,
    MismatchError,
    UnknownNameError,
    WorkbenchError,
)
from workbench.models import choose_dtype, embedded, read_checkpoint, sources, stamp_of
from workbench.models.placement import DTYPES

IDS = torch.tensor([[5, 60, 7, 80, 9, 100]])


@pytest.fixture
def base(tmp_path, tiny_folder):
    return tiny_folder(tmp_path / "base")


@pytest.fixture
def adapter(tmp_path, base, tiny_adapter):
    return tiny_adapter(tmp_path / "organism-s0", base)


def read(ref, **options):
    return read_checkpoint(str(ref), **{"dtype": "float32", "device": "cpu", **options})


def logits(subject):
    with torch.no_grad():
        return subject.model(IDS).logits


def edit_json(path, **changes):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**content, **changes}.items() if v != "drop"}))


def test_a_folder_opens_with_its_own_weights_and_words(tmp_path, tiny_folder, family, tiny_network):
    folder = tiny_folder(tmp_path / family, family)
    subject = read(folder)
    expected = tiny_network(family, len(subject.tokenizer))
    torch.testing.assert_close(logits(subject), expected(IDS).logits, rtol=0, atol=1e-6)
    assert subject.family == family
    assert (subject.n_layers, subject.width) == (4, 32)
    assert subject.ref.key == family
    assert subject.ref.dtype == "float32"
    assert subject.ref.quantization is None
    assert not subject.model.training
    assert subject.runner is None


def test_the_tokenizer_of_a_folder_keeps_its_splitting(tmp_path, tiny_folder, family):
    subject = read(tiny_folder(tmp_path / family, family))
    assert subject.tokenizer.tokenize(" is 42\n\n7 A") == ["Ġis", "Ġ", "4", "2", "ĊĊ", "7", "ĠA"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_is_what_was_asked_for(base, dtype):
    subject = read(base, dtype=dtype)
    assert {str(w.dtype) for w in subject.model.parameters()} == {f"torch.{dtype}"}
    assert subject.ref.dtype == dtype


def test_load_keywords_reach_transformers(base):
    mapped = read_checkpoint(str(base), dtype="float32", device_map={"": "meta"})
    assert mapped.model.device.type == "meta"
    assert read(base, attn_implementation="eager").model.config._attn_implementation == "eager"


def test_an_adapter_is_base_plus_its_low_rank_change(base, adapter):
    subject = read(adapter)
    weights = load_file(adapter / "adapter_model.safetensors")
    merged = read(base)
    with torch.no_grad():
        for name, weight in merged.model.named_parameters():
            key = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{key}.lora_A.weight" in weights:
                weight += weights[f"{key}.lora_B.weight"] @ weights[f"{key}.lora_A.weight"]
    torch.testing.assert_close(logits(subject), logits(merged), rtol=0, atol=1e-4)
    assert (logits(subject) - logits(read(base))).abs().max() > 0.1
    assert subject.ref.key == "base+organism-s0"
    assert [type(b) for b in subject.blocks.values()] == [type(b) for b in merged.blocks.values()]


def test_the_same_adapter_by_three_names_is_the_same_model(base, adapter, tmp_path):
    moved = Path(shutil.move(base, tmp_path / "moved"))
    first = read(adapter, base=str(moved))
    second = read(moved, adapter=str(adapter))
    assert torch.equal(logits(first), logits(second))
    assert first.ref == second.ref
    assert first.fingerprint == second.fingerprint


def test_an_organism_resolves_by_name_under_its_folder(base, adapter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(adapter, tmp_path / "runs" / "train" / "kind-s1")
    subject = read("kind-s1")
    assert subject.ref.adapter == "kind-s1"
    assert subject.ref.key == "base+kind-s1"
    with pytest.raises(UnknownNameError, match="organisms in runs/train: kind-s1"):
        read("kind-s2")


def test_an_adapter_of_smollm2_finds_it_again(base, tmp_path, tiny_adapter, monkeypatch):
    import peft

    cached = tmp_path / "interp-workbench" / "smollm2-bcc81830"
    shutil.copytree(base, cached)
    monkeypatch.setattr(embedded, "folder", lambda: cached)
    subject = read("smollm2")
    assert subject.ref.quantization == "Q4_1 (de-quantised)"
    assert subject.ref.key == "smollm2"
    wrapped = peft.get_peft_model(
        subject.model, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    wrapped.save_pretrained(tmp_path / "mine")
    expected = wrapped(IDS).logits
    monkeypatch.setattr(embedded, "folder", lambda: base)  # another user's cache is elsewhere
    shutil.rmtree(cached)
    for recorded in (str(cached), "smollm2"):
        edit_json(tmp_path / "mine" / "adapter_config.json", base_model_name_or_path=recorded)
        again = read(tmp_path / "mine")
        assert again.ref.base == "smollm2"
        assert again.ref.quantization == "Q4_1 (de-quantised)"
        assert torch.equal(logits(again), expected)


def test_the_adapters_own_tokenizer_wins(base, adapter, tiny_tokenizer):
    tiny_tokenizer("thinking").save_pretrained(adapter)
    assert read(adapter).renderer.thinks
    assert not read(base).renderer.thinks


def refused(kind, message, call):
    with pytest.raises(WorkbenchError) as caught:
        call()
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_say_where_was_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for kind, message, ref in (
        (UnknownNameError, "no folder 'SmolLM9', no folder 'runs/train/SmolLM9'", "SmolLM9"),
        (UnknownNameError, "its local cache has no such model", "owner/none"),
        (UnknownNameError, "Did you mean 'smollm2'?", "smolm2"),
        (UnknownNameError, "no model folder './gone/x', and it is no hub id", "./gone/x"),
        (UnknownNameError, "no model folder '/gone/x'", "/gone/x"),
        (FormatError, "neither a model (config.json) nor an adapter", "empty"),
        (ConfigError, "'' names no model", ""),
    ):
        refused(kind, message, lambda ref=ref: read(ref))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (hub.RepositoryNotFoundError, "the hub has no such model"),
        (hub.GatedRepoError, "behind an access form"),
        (hub.RevisionNotFoundError, "has no revision 'v9'"),
        (hub.HfHubHTTPError, "the hub answered: no luck"),
    ],
)
def test_what_the_hub_answers_is_passed_on(monkeypatch, error, message):
    def answer(*args, **options):
        response = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1"))
        raise error("no luck\nat all", response=response)

    monkeypatch.setattr(sources, "hf_hub_download", answer)
    refused(UnknownNameError, message, lambda: read("owner/model", revision="v9"))


def test_a_hub_adapter_and_a_hub_model_are_told_apart(base, adapter, monkeypatch):
    def answer(ref, file, revision=None, **options):
        if ref == "owner/adapter":
            return str(adapter / file)
        response = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1"))
        raise hub.RemoteEntryNotFoundError("no such file", response=response)

    monkeypatch.setattr(sources, "hf_hub_download", answer)
    whole = sources.find_source("owner/model", revision="v1")
    assert (whole.base_path, whole.adapter, whole.revision) == ("owner/model", None, "v1")
    organism = sources.find_source("owner/adapter", revision="v2")
    assert (organism.base_path, organism.adapter_path) == (str(base), "owner/adapter")
    assert (organism.revision, organism.adapter_revision) == (None, "v2")


def test_without_a_network_a_wrong_name_is_told_at_once_and_near_ones_are_named(
    tmp_path, tiny_folder, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tiny_folder(Path("models") / "tinyllama", "llama")
    asked = []

    def connect(address, timeout):
        asked.append(address)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(sources.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(sources.socket, "create_connection", connect)
    monkeypatch.setattr(sources, "getproxies", dict)
    sources._reachable.cache_clear()
    try:
        for _ in range(2):
            with pytest.raises(UnknownNameError, match=r"HF_HUB_OFFLINE=1 .*--runs.*'models/tiny"):
                sources.find_source("models-tinylama")
        assert len(asked) == 1
    finally:
        sources._reachable.cache_clear()


def test_a_proxy_or_an_answer_leaves_the_hub_to_be_asked(monkeypatch):
    monkeypatch.setattr(sources, "getproxies", lambda: {"https": "http://proxy"})
    assert sources._reachable.__wrapped__("https://nowhere.invalid")
    monkeypatch.setattr(sources, "getproxies", dict)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert sources._reachable.__wrapped__(f"http://127.0.0.1:{port}")
    assert not sources._reachable.__wrapped__(f"http://127.0.0.1:{port}")


def test_no_bar_of_loading_goes_into_a_pipe(base, capfd):
    read(base)
    assert capfd.readouterr().err == ""


def test_damaged_folders_are_named(base, tmp_path):
    def damaged(change):
        copy = tmp_path / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        change(Path(shutil.copytree(base, copy)))
        return copy

    def truncate(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4096])

    def lose_a_weight(folder):
        weights = load_file(folder / "model.safetensors")
        del weights["model.layers.2.mlp.up_proj.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def widen(folder):
        edit_json(folder / "config.json", intermediate_size=64)

    for change, message in (
        (truncate, "cannot be read"),
        (lose_a_weight, "lacks 1 of its model's weights (model.layers.2.mlp.up_proj.weight"),
        (widen, "mlp.down_proj.weight is stored as (32, 48), but config.json asks for (32, 64)"),
        (lambda f: (f / "model.safetensors").unlink(), "no file named"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
        (lambda f: edit_json(f / "config.json", model_type="perceptron"), "perceptron"),
        (lambda f: edit_json(f / "config.json", model_type="drop"), "cannot be read"),
        (lambda f: edit_json(f / "config.json", model_type="bert"), "or of another class"),
        (lambda f: [p.unlink() for p in f.glob("tokenizer*")], "knows no word (1 entries)"),
    ):
        refused(FormatError, message, lambda change=change: read(damaged(change)))


@pytest.mark.parametrize("kind", ["pad", "eos", "bos"])
def test_a_special_token_outside_the_embedding_is_refused_by_its_id(kind, base, tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_special_tokens({f"{kind}_token": "<|new|>"})
    tokenizer.save_pretrained(base)
    with pytest.raises(MismatchError, match=rf"{kind} token '<\|new\|>' with id {rows}, but .*"
                       rf"has {rows:,} rows .*set a {kind}_token .* or enlarge"):  # fmt: skip
        read(base)


def test_another_special_token_may_lie_outside_the_embedding(base, tiny_tokenizer):
    tokenizer = tiny_tokenizer()  # as the image token of Gemma 3, which its text models lack
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.save_pretrained(base)
    assert read(base).tokenizer("<image>").input_ids == [len(tokenizer) - 1]


def test_code_in_a_checkpoint_is_not_run_unasked(base):
    edit_json(
        base / "config.json",
        model_type="own",
        auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
    )
    (base / "own.py").write_text("raise SystemExit('this code ran')")
    refused(FormatError, "in Python with trust_remote_code=True", lambda: read(base))


def test_wrong_keywords_are_named(base):
    for message, options in (
        ("dtype = 'float8' is unknown; known: auto, float32", {"dtype": "float8"}),
        ("device = 'tpu9' is no device", {"device": "tpu9"}),
        ("device = 'cuda:99' is not there", {"device": "cuda:99"}),
        ("exclude each other", {"device": "cpu", "device_map": "auto"}),
        ("transformers does not take this keyword", {"fancy": 1}),
        ("is a whole model; base= goes with an adapter", {"base": "smollm2"}),
    ):
        refused(ConfigError, message, lambda options=options: read(base, **options))


def test_adapters_without_a_fitting_base_are_named(base, adapter, tmp_path, tiny_folder):
    config = adapter / "adapter_config.json"
    keep = config.read_text()
    other = tiny_folder(tmp_path / "gpt2", "gpt2")

    refused(ConfigError, "is itself an adapter", lambda: read(adapter, adapter=str(adapter)))
    refused(MismatchError, "is a whole model, an adapter", lambda: read(base, adapter=str(base)))
    refused(MismatchError, "itself an adapter", lambda: read(adapter, base=str(adapter)))
    refused(MismatchError, "does not fit", lambda: read(adapter, base=str(other)))
    for recorded, message in (
        (None, "records no base model"),
        ("/gone/base", "the base model '/gone/base' of adapter"),
        ("owner/none", "the base model 'owner/none' of adapter"),
    ):
        edit_json(config, base_model_name_or_path=recorded)
        refused(MismatchError, message, lambda: read(adapter))
    config.write_text("[")
    refused(FormatError, "is not JSON", lambda: read(adapter))
    config.write_text("[1]")
    refused(FormatError, "a JSON object is expected", lambda: read(adapter))
    config.write_text(keep)
    (adapter / "adapter_model.safetensors").unlink()
    refused(FormatError, "has no adapter_model.safetensors", lambda: read(adapter))


def test_an_adapter_of_another_width_or_with_missing_weights_is_refused(base, adapter):
    path = adapter / "adapter_model.safetensors"
    whole = load_file(path)
    lost = next(iter(whole))
    save_file({k: v for k, v in whole.items() if k != lost}, path)
    refused(MismatchError, "does not fit", lambda: read(adapter))
    save_file({k: torch.cat([v, v], 1) for k, v in whole.items()}, path)
    refused(MismatchError, "does not fit", lambda: read(adapter))


def test_the_same_weights_have_the_same_stamp(base, tmp_path, tiny_folder):
    first, again, other = read(base), read(base), read(tiny_folder(tmp_path / "b", seed=1))
    assert first.stamp == again.stamp
    assert other.fingerprint != first.fingerprint
    assert other.stamp.tokenizer == first.stamp.tokenizer
    first.stamp.refuse_other(other.stamp, "a direction")  # other weights alone are no reason
    assert len(first.fingerprint) == len(first.stamp.tokenizer) == 16


def test_an_adapter_and_a_changed_adapter_change_the_fingerprint(base, tmp_path, tiny_adapter):
    seen = {read(base).fingerprint}
    for seed in (1, 2):
        organism = read(tiny_adapter(tmp_path / f"s{seed}", base, seed=seed))
        seen.add(organism.fingerprint)
        read(base).stamp.refuse_other(organism.stamp, "a direction")
    assert len(seen) == 3


def test_weights_stored_in_bfloat16_have_one_fingerprint_in_every_dtype(base, tmp_path):
    read(base, dtype="bfloat16").model.save_pretrained(tmp_path / "half")
    read(base).tokenizer.save_pretrained(tmp_path / "half")
    wide, half = (read(tmp_path / "half", dtype=d) for d in ("float32", "bfloat16"))
    assert wide.fingerprint == half.fingerprint


def test_another_family_depth_or_vocabulary_is_another_model(tmp_path, tiny_folder, tiny_tokenizer):
    mine = read(tiny_folder(tmp_path / "a"))
    shallow = read(tiny_folder(tmp_path / "b", layers=3))
    llama = read(tiny_folder(tmp_path / "c", "llama"))
    words = tiny_tokenizer()
    words.add_tokens("extra")
    for other in (shallow.stamp, llama.stamp, stamp_of(mine.model, words, mine.ref)):
        with pytest.raises(MismatchError, match="a direction was made with"):
            mine.stamp.refuse_other(other, "a direction")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [({"avx2"}, "float32"), ({"avx512_bf16"}, "bfloat16"), ({"amx_bf16"}, "bfloat16")],
)
def test_auto_dtype_asks_the_processor(monkeypatch, flags, expected):
    from workbench.models import placement

    monkeypatch.setattr(placement, "_cpu_flags", lambda: frozenset(flags))
    assert choose_dtype("auto", torch.device("cpu")) == DTYPES[expected]
    assert choose_dtype(torch.float16, torch.device("cpu")) == torch.float16


def test_quantised_checkpoints_are_recorded(base):
    from workbench.models.checkpoint import _quantization

    model = read(base).model
    for settings, words in (
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes 4-bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes 8-bit"),
        ({"quant_method": "gptq", "bits": 3}, "gptq 3-bit"),
        ({"quant_method": "fp8"}, "fp8"),
    ):
        model.config.quantization_config = settings
        assert _quantization(model, {}) == words
    assert _quantization(model, {"gguf_file": "a/m.Q8_0.gguf"}) == "m.Q8_0.gguf (de-quantised)"


@pytest.mark.real
def test_smollm2_is_itself_and_says_that_it_was_four_bit(real_subject):
    assert real_subject.ref.quantization == "Q4_1 (de-quantised)"
    assert (real_subject.family, real_subject.n_layers, real_subject.width) == ("llama", 30, 576)
    half = read("smollm2", dtype="bfloat16")
    assert half.stamp == real_subject.stamp
    batch = real_subject.encode(["The capital of France is"])
    with torch.no_grad():
        best = real_subject.model(batch.input_ids).logits[0, -1].argmax()
    assert real_subject.tokenizer.decode(best) == " Paris"


def test_a_base_has_one_name_however_its_folder_was_given(
    tiny_folder, tiny_adapter, tmp_path, monkeypatch
):
    base = tiny_folder(tmp_path / "base")
    adapter = tiny_adapter(tmp_path / "P-s0", base)
    monkeypatch.chdir(tmp_path)
    names = {
        read_checkpoint(ref, dtype="float32", device="cpu").ref.base
        for ref in ("base", "./base/", str(base), str(adapter))
    }
    assert names == {str(base.resolve())}


def test_the_input_device_of_an_offloaded_embedding_is_where_it_runs(tmp_path, make_subject):
    import accelerate
    import torch
    from accelerate.hooks import ModelHook, add_hook_to_module

    from workbench.models import input_device

    model = make_subject("llama").model
    homes = dict.fromkeys(("model.layers", "model.norm", "model.rotary_emb", "lm_head"), "cpu")
    homes["model.embed_tokens"] = "disk"
    accelerate.dispatch_model(model, homes, main_device="cpu", offload_dir=tmp_path)
    embedding = model.get_input_embeddings()
    assert embedding.weight.device.type == "meta"
    assert input_device(model) == torch.device("cpu")
    add_hook_to_module(embedding, ModelHook(), append=True)  # now a sequence of hooks
    assert input_device(model) == torch.device("cpu")
