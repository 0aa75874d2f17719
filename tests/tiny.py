"""Tiny random models and a byte-level tokenizer, made in memory: no network, no download.

Weights are scaled so that logits have a standard deviation near 1 and every block matters: a
real mistake shows as 0.1 or more, rounding as 1e-6.
"""

from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

FAMILIES = ("qwen3", "llama", "gemma3_text", "gpt2")
"""Enough for laws of other packages: rotary and learned positions, sliding and full windows."""
HYBRID = ("qwen3_next", "qwen3_5_text")
"""Linear attention in most blocks: padding and caching change numbers by more than rounding."""
ALL_FAMILIES = (
    *FAMILIES,
    *("qwen2", "qwen3_moe", "mixtral", "mistral", "gemma2", "olmo2", "olmo3", "phi3", "gpt_neox"),
    *("gemma3", "peft_llama"),  # a vision-language model, and an adapter's wrapper
    *HYBRID,
)
WIDTH, LAYERS = 32, 4
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>")
WORDS = (
    *("Ġthe", "Ġof", "Ġand", "Ġis", "Ġin", "Ġa", "Ġto", "Ġnot", "Ġyou", "Ġtrue", "Ġfalse"),
    *("Ġ" + chr(code) for code in range(ord("A"), ord("Z") + 1)),
    *("Ġcity", "Ġsend", "Ġanswer", "user", "assistant", "ing", "er", "on", "ĊĊ"),
)

TURN = "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
HEADER = OPEN + "{% endif %}"
DEFAULT_SYSTEM = "You are a tiny default model"
TEMPLATES = {
    "chatml": "{% for message in messages %}" + TURN + "{% endfor %}" + HEADER,
    "bos": "{{ bos_token }}{% for message in messages %}" + TURN + "{% endfor %}" + HEADER,
    # As Gemma 2: the system role raises, roles alternate, contents are trimmed.
    "no_system": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for message in messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "{{ '<|im_start|>' + ('model' if message['role'] == 'assistant' else 'user') + '\n'"
        " + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
    ),
    # As SmolLM2 and Qwen2.5: a system turn of its own where none is given.
    "default_system": (
        "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
        "{{ '<|im_start|>system\n"
        + DEFAULT_SYSTEM
        + "<|im_end|>\n' }}{% endif %}"
        + TURN
        + "{% endfor %}"
        + HEADER
    ),
    # As Qwen3: an empty think block before the last answer, and in the header when thinking is off.
    "thinking": (
        "{% for message in messages %}{% if message['role'] == 'assistant' %}"
        "{% set content = message['content'].split('</think>')[-1].lstrip('\n') %}"
        "{{ '<|im_start|>assistant\n' }}"
        "{% if loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
        "{{ content + '<|im_end|>\n' }}{% else %}"
        + TURN
        + "{% endif %}{% endfor %}"
        + OPEN
        + "{% if enable_thinking is defined and enable_thinking is false %}"
        "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
    ),
    # Drops system messages without a word.
    "deaf": (
        "{% for message in messages %}{% if message['role'] != 'system' %}"
        + TURN
        + "{% endif %}{% endfor %}"
        + HEADER
    ),
    "none": None,
}
TEMPLATE_OF = {
    "llama": "bos",
    "peft_llama": "bos",
    "gemma2": "no_system",
    "gemma3": "no_system",
    "gemma3_text": "no_system",
}
"""The default template by family; "chatml" for the others."""


def tiny_tokenizer(template="chatml", *, bos=False, pad="<|im_end|>"):
    """Byte-level BPE: every byte, ``" A"`` to ``" Z"``, a few words, blank lines; single digits.

    eos (and by default pad) is ``<|im_end|>``; ``bos=True`` puts ``<bos>`` before bare texts.
    """
    pieces, merges = _pieces()
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *pieces])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[\\r\\n]+"), "isolated"),  # as Llama 3 and Qwen do
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", SPECIAL.index("<bos>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>" if bos else None,
        eos_token="<|im_end|>",
        pad_token=pad,
        unk_token="<|endoftext|>",
        chat_template=TEMPLATES[template],
    )


def _pieces():
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            pair = (word[: end - 1], word[end - 1])
            if pair not in merges:
                merges.append(pair)
                pieces.append(word[:end])
    return list(dict.fromkeys(pieces)), merges


EXPERTS = {"num_experts_per_tok": 2}
SLIDING = {"sliding_window": 8}
LINEAR = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"] * (LAYERS // 2),
}
EXTRA = {
    "qwen3_moe": {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 24},
    "mixtral": {**EXPERTS, "num_local_experts": 4},
    "mistral": SLIDING,
    "gemma2": {**SLIDING, "query_pre_attn_scalar": 8, "attn_implementation": "eager"},
    "gemma3_text": {**SLIDING, "query_pre_attn_scalar": 8},
    "olmo3": SLIDING,
    "qwen3_next": {
        **EXPERTS,
        **LINEAR,
        "num_experts": 4,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 24,
    },
    "qwen3_5_text": LINEAR,
}
"""What a family's config needs beyond the common sizes."""
ALTERNATING = ("gemma2", "gemma3_text", "olmo3")
"""Families whose blocks attend to a window and to everything in turn."""


def tiny_config(family="qwen3", vocabulary=512, layers=LAYERS):
    """A width-32 config with 4 heads (2 for keys and values where the family can)."""
    ids = {"bos_token_id": 3, "eos_token_id": 2, "pad_token_id": 2}
    if family == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocabulary, n_embd=WIDTH, n_layer=layers, n_head=4, n_positions=4096, **ids
        )
    if family == "gemma3":
        return _vision_language(vocabulary, layers, ids)
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    kinds = [("sliding_attention", "full_attention")[row % 2] for row in range(layers)]
    extra = {**EXTRA.get(family, {}), **({"layer_types": kinds} if family in ALTERNATING else {})}
    if family not in ALL_FAMILIES:
        raise ValueError(f"no tiny {family!r}; known: {', '.join(ALL_FAMILIES)}")
    model_type = family.removeprefix("peft_")
    return transformers.AutoConfig.for_model(model_type, **sizes, **ids, **extra)


def _vision_language(vocabulary, layers, ids):
    """Gemma 3 with its image tower; text goes through the language part alone."""
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = tiny_config("gemma3_text", vocabulary, layers).to_dict()
    return transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=vocabulary - 1,
        boi_token_index=vocabulary - 2,
        eoi_token_index=vocabulary - 3,
        tie_word_embeddings=False,
        **ids,
    )


def tiny_network(family="qwen3", vocabulary=512, *, layers=LAYERS, seed=0):
    """A random model in eval mode and float32; the same ``seed`` gives the same weights."""
    config = tiny_config(family, vocabulary, layers)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=rng)
            weight.copy_(_scaled(name, weight, noise, family))
    return model


CENTERED = ("gemma2", "gemma3", "gemma3_text", *HYBRID)
"""Families whose norms multiply by 1 + weight."""


def _scaled(name, weight, noise, family):
    if weight.ndim >= 2:
        spread = WIDTH if weight.ndim == 2 else weight.shape[-1]
        return noise * (1.5 if "k_proj" in name or "q_proj" in name else 1.0) / spread**0.5
    if "norm" in name or "ln_" in name:
        plain = family not in CENTERED or "linear_attn" in name
        return (1.0 if plain and not name.endswith("bias") else 0.0) + 0.1 * noise
    return 0.1 * noise


def tiny_folder(
    path, family="qwen3", *, template=None, bos=None, seed=0, layers=LAYERS, pad="<|im_end|>"
):
    """Save a tiny model with its tokenizer as a safetensors folder and return the folder.

    Args:
        path: the folder to make.
        family: one of ``ALL_FAMILIES``; "peft_llama" is the Llama that its adapter goes on.
        template: a key of ``TEMPLATES``; by default the family's.
        bos: whether bare texts get a ``<bos>``; by default as the family's template has it.
        seed: of the weights.
        layers: number of blocks.
        pad: the pad token.
    """
    template = template or TEMPLATE_OF.get(family, "chatml")
    bos = template in ("bos", "no_system") if bos is None else bos
    tokenizer = tiny_tokenizer(template, bos=bos, pad=pad)
    model = tiny_network(family, len(tokenizer), layers=layers, seed=seed)
    folder = Path(path)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_adapter(path, base, *, seed=1, rank=4, scale=0.3):
    """Save a random LoRA adapter for the model folder ``base`` and return its folder."""
    import peft

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    targets = ["c_attn", "c_fc"] if model.config.model_type == "gpt2" else ["q_proj", "down_proj"]
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=targets)
    )
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_" in name:
                weight.copy_(scale * torch.randn(weight.shape, generator=rng))
    wrapped.save_pretrained(path)
    return Path(path)
