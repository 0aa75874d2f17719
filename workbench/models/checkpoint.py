"""From a reference to a Subject: the only place where checkpoints are opened."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.models import embedded
from workbench.models.families import find_blocks, text_config
from workbench.models.placement import choose_device, choose_dtype
from workbench.models.render import ChatRenderer
from workbench.models.sources import Source, find_source
from workbench.models.stamp import stamp_of
from workbench.types import ModelRef, Subject

logger = logging.getLogger(__name__)


def read_checkpoint(
    ref: str,
    *,
    adapter: str | None = None,
    base: str | None = None,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    trust_remote_code: bool = False,
    **load_kwargs: Any,
) -> Subject:
    """Open a model for study: eval mode, one device (or ``device_map``), no runner yet.

    Args:
        ref: a hub id, a model folder, an adapter (folder or hub id), the name of an organism
            under runs/train, or "smollm2".
        adapter: an adapter to put on top of the model ``ref``.
        base: the base model of the adapter ``ref``, where its config does not say it or names a
            place that is gone.
        revision: the hub revision of ``ref``.
        dtype: "auto" is bfloat16 where the hardware computes in it, else float32.
        device: "auto" is the first of CUDA, MPS and the CPU.
        trust_remote_code: run code that comes with the checkpoint.
        **load_kwargs: passed to transformers, such as ``device_map`` or ``quantization_config``.

    Raises:
        UnknownNameError: nothing of that name on disk or on the hub.
        MismatchError: an adapter without its base, or made for another model.
        FormatError: a damaged or incomplete checkpoint.
        ConfigError: keywords that make no sense here.
    """
    started = time.perf_counter()
    device_map = "device_map" in load_kwargs
    if device_map and str(device) != "auto":
        raise ConfigError(
            f"device={str(device)!r} and device_map={load_kwargs['device_map']!r} exclude each "
            "other; give one of them"
        )
    place = choose_device(device)
    chosen = choose_dtype(dtype, place)
    source = find_source(ref, adapter=adapter, base=base, revision=revision)
    if load_kwargs.get("quantization_config") is not None and not device_map:
        load_kwargs["device_map"] = {"": place}
    with embedded.quiet(source.base == embedded.NAME or not _watched()):
        model = _network(source, chosen, trust_remote_code, load_kwargs)
        if "device_map" not in load_kwargs:
            model.to(place)
        model = _adapted(model, source)
    tokenizer = _tokenizer(source, trust_remote_code)
    _refuse_unembedded(source, tokenizer, len(model.get_input_embeddings().weight))
    subject = _subject(model.eval(), tokenizer, source, chosen, load_kwargs)
    logger.info(
        "loaded %s (%s, %s) in %.1f s",
        subject.ref.key,
        subject.ref.dtype,
        input_device(model),
        time.perf_counter() - started,
    )
    return subject


def _watched() -> bool:
    """Whether a person sees progress bars: in a terminal or a notebook, not in a pipe or a file."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def input_device(model: Any) -> torch.device:
    """Device that token ids must be on: the embedding's, also for a model cut over several.

    Weights that wait on the disk or in memory are nowhere; accelerate brings them to a device of
    its own choice when the module runs.
    """
    embedding = model.get_input_embeddings()
    device: torch.device = embedding.weight.device
    if device.type != "meta":
        return device
    hooks = getattr(getattr(embedding, "_hf_hook", None), "hooks", None) or [
        getattr(embedding, "_hf_hook", None)
    ]
    chosen = [getattr(hook, "execution_device", None) for hook in hooks]
    return torch.device(next((one for one in chosen if one is not None), model.device))


def _subject(
    model: Any, tokenizer: Any, source: Source, dtype: torch.dtype, load_kwargs: dict[str, Any]
) -> Subject:
    ref = ModelRef(
        base=source.base,
        adapter=source.adapter,
        revision=source.revision,
        dtype=str(dtype).removeprefix("torch."),
        quantization=source.quantization or _quantization(model, load_kwargs),
    )
    return Subject(
        ref=ref,
        model=model,
        tokenizer=tokenizer,
        family=str(text_config(model).model_type),
        blocks=find_blocks(model),
        stamp=stamp_of(model, tokenizer, ref),
        renderer=ChatRenderer(
            tokenizer,
            device=lambda: input_device(model),
            vocabulary=model.get_input_embeddings().weight.shape[0],
        ),
    )


def _network(
    source: Source, dtype: torch.dtype, trust_remote_code: bool, load_kwargs: dict[str, Any]
) -> Any:
    """Open the base model; weights that the files lack are an error, never random numbers."""
    with _explained(source.base, "model"):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            source.base_path,
            revision=source.revision,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            local_files_only=source.offline,
            output_loading_info=True,
            **{"ignore_mismatched_sizes": True, **load_kwargs},
        )
    missing, sizes = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    if missing:
        raise FormatError(
            f"{source.base!r} lacks {len(missing)} of its model's weights ({missing[0]}, ...); "
            "the checkpoint is incomplete or of another class, so fetch or save it again"
        )
    if sizes:
        name, stored, expected = sizes[0]
        raise FormatError(
            f"{source.base!r}: {name} is stored as {tuple(stored)}, but config.json asks for "
            f"{tuple(expected)} (and {len(sizes) - 1} more); fetch or save the checkpoint again"
        )
    return model


def _adapted(model: Any, source: Source) -> Any:
    if source.adapter_path is None:
        return model
    import peft

    folder = Path(source.adapter_path)
    if folder.is_dir() and not any(folder.glob("adapter_model.*")):
        raise FormatError(
            f"adapter folder {str(folder)!r} has no adapter_model.safetensors; if it is a "
            "training run, let it finish, else save the adapter again"
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            # PEFT reads a property that newer transformers renamed.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            # Nor does it see that its own patterns for fused experts match.
            warnings.filterwarnings("ignore", ".*_pattern keys did not match.*", RuntimeWarning)
            return peft.PeftModel.from_pretrained(
                model, source.adapter_path, revision=source.adapter_revision
            )
    except (RuntimeError, ValueError, UserWarning, KeyError) as error:
        raise MismatchError(
            f"adapter {source.adapter!r} does not fit {source.base!r}: {_first_line(error)}. "
            "Load it on the model that it was trained on (base=...)"
        ) from error
    except (OSError, SafetensorError) as error:
        raise FormatError(
            f"adapter {source.adapter!r} cannot be read: {_first_line(error)}; save it again"
        ) from error


def _tokenizer(source: Source, trust_remote_code: bool) -> Any:
    """The adapter's own tokenizer where it brings one, else the base's."""
    path, revision, name = source.base_path, source.revision, source.base
    if source.adapter_path and (Path(source.adapter_path) / "tokenizer_config.json").is_file():
        path, revision, name = source.adapter_path, None, str(source.adapter)
    with _explained(name, "tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path,
            revision=revision,
            trust_remote_code=trust_remote_code,
            local_files_only=source.offline,
        )
    # Without its files, transformers may build a tokenizer of the right class with no words.
    if set(tokenizer("True or false?").input_ids) <= set(tokenizer.all_special_ids):
        raise FormatError(
            f"the tokenizer of {name!r} knows no word ({len(tokenizer)} entries): its files are "
            "missing; put tokenizer.json beside config.json"
        )
    return tokenizer


USED = ("pad", "eos", "bos")
"""Tokens that are put into a batch unasked; others are refused by the prompt that has them."""


def _refuse_unembedded(source: Source, tokenizer: Any, rows: int) -> None:
    """Refuse a tokenizer whose own padding, end or beginning the model has no embedding of."""
    for kind in USED:
        number = getattr(tokenizer, f"{kind}_token_id", None)
        if number is not None and number >= rows:
            token = getattr(tokenizer, f"{kind}_token")
            raise MismatchError(
                f"the tokenizer of {source.base!r} has the {kind} token {token!r} with id "
                f"{number}, but the model's embedding has {rows:,} rows (ids 0 to {rows - 1}); "
                f"set a {kind}_token that has one in tokenizer_config.json, or enlarge the "
                f"embedding to {number + 1:,} rows (transformers' resize_token_embeddings) and "
                "save the model again"
            )


def _quantization(model: Any, load_kwargs: dict[str, Any]) -> str | None:
    """How the weights were rounded, in words: from the loaded config or a GGUF file's name."""
    if "gguf_file" in load_kwargs:
        return f"{Path(load_kwargs['gguf_file']).name} (de-quantised)"
    config = getattr(model.config, "quantization_config", None)
    if config is None:
        return None
    settings = config if isinstance(config, dict) else config.to_dict()
    method = getattr(settings.get("quant_method"), "value", settings.get("quant_method"))
    if method == "bitsandbytes":
        return "bitsandbytes 4-bit" if settings.get("load_in_4bit") else "bitsandbytes 8-bit"
    bits = settings.get("bits")
    return f"{method} {bits}-bit" if bits else str(method)


@contextlib.contextmanager
def _explained(name: str, part: str) -> Iterator[None]:
    """Turn what transformers raises for a user's mistake into an error with a next step."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the {part} of {name!r} needs a package that is not installed: {_first_line(error)}"
        ) from error
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the {part} of {name!r} does not fit the device's memory; take a narrower format "
            "(--dtype bfloat16), or in Python a quantization_config or device_map='auto'"
        ) from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ConfigError(
            f"transformers does not take this keyword for {name!r}: {_first_line(error)}"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise FormatError(_unreadable(name, part, error)) from error


def _unreadable(name: str, part: str, error: BaseException) -> str:
    if "trust_remote_code" in str(error):
        return (
            f"the {part} of {name!r} comes with its own code, which is not run unasked; read it, "
            "then load it in Python with trust_remote_code=True"
        )
    return (
        f"the {part} of {name!r} cannot be read: {_first_line(error)}. Expected is what "
        "save_pretrained writes for a causal language model (config.json, *.safetensors, "
        "tokenizer.json); fetch or save it again"
    )


def _first_line(error: BaseException) -> str:
    """The first line that says something; a heading that ends with a colon goes with the next."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    first = lines[0].strip().rstrip(". ")
    return f"{first} {lines[1].strip()}" if first.endswith(":") and len(lines) > 1 else first
