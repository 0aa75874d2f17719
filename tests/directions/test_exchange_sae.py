"""Decoder rows of sparse autoencoders: which block and site a hook point means."""

import json

import numpy as np
import pytest
import torch
from planted import STAMP
from safetensors.torch import save_file

import workbench as wb
from workbench.directions.exchange import describe_foreign, recognise
from workbench.directions.exchange.sparse import place_of
from workbench.errors import ConfigError, FormatError, MismatchError

FEATURES = 40
DECODER = torch.randn(FEATURES, STAMP.width, generator=torch.Generator().manual_seed(0))


def saved(folder, config=None, decoder=DECODER, name="sae_weights.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "W_dec": decoder,
        "W_enc": torch.zeros(STAMP.width, FEATURES),
        "b_dec": torch.zeros(STAMP.width),
    }
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / name)
    if config is not None:
        (folder / "cfg.json").write_text(json.dumps(config))
    return folder / name


@pytest.mark.parametrize(
    ("hook", "place"),
    [
        ("blocks.3.hook_resid_post", (3, "resid_post")),
        ("blocks.3.hook_resid_pre", (2, "resid_post")),
        ("blocks.3.hook_mlp_out", (3, "mlp_out")),
        ("blocks.3.hook_attn_out", (3, "attn_out")),
        ("layers.3", (3, "resid_post")),
        ("model.layers.3", (3, "resid_post")),
        ("layers.3.mlp", (3, "mlp_out")),
        ("gpt_neox.layers.3", (3, "resid_post")),
        ("transformer.h.3", (3, "resid_post")),
    ],
)
def test_a_hook_point_is_a_block_and_a_site(tmp_path, hook, place):
    assert place_of(hook) == place
    path = saved(tmp_path, {"hook_name": hook, "d_in": 24, "model_name": "tiny"})
    found = wb.import_directions(path, STAMP, features=[7, 0, 39])
    assert (found.layers[0], found.site) == place
    assert found.names == ("feature-7", "feature-0", "feature-39")
    np.testing.assert_array_equal(found.vectors[:, 0], DECODER[[7, 0, 39]].numpy())
    assert (found.info["hook"], found.info["features"]) == (hook, [7, 0, 39])
    again = wb.open_directions(wb.save_directions(found, tmp_path / "own.safetensors"))
    np.testing.assert_array_equal(again.vectors, found.vectors)


def test_the_stream_before_a_block_is_what_the_block_below_puts_out(tmp_path, subject_of):
    """The shift by one against the model itself."""
    subject = subject_of("llama")
    prompts = wb.PromptSet.from_records([{"text": "the city is in a"}], text="text")
    before = wb.capture(subject, prompts, site="resid_pre", position="last")
    after = wb.capture(subject, prompts, site="resid_post", position="last")
    layer, site = place_of("blocks.2.hook_resid_pre")
    assert site == "resid_post"
    np.testing.assert_allclose(before.at(2), after.at(layer), atol=1e-6)


@pytest.mark.parametrize(
    "hook",
    ["blocks.3.hook_z", "blocks.3.attn.hook_z", "hook_embed", "blocks.0.hook_resid_pre", "3"],
)
def test_a_hook_point_without_a_place_here_is_refused(tmp_path, hook):
    path = saved(tmp_path, {"hook_name": hook})
    with pytest.raises(ConfigError, match=f"hook point '{hook}'"):
        wb.import_directions(path, STAMP, features=[1])


def test_the_place_is_found_in_old_and_new_configurations_the_folder_or_the_call(tmp_path):
    for number, config in enumerate(
        (
            {"hook_name": "blocks.2.hook_resid_post", "hook_layer": 2},
            {"d_in": 24, "metadata": {"hook_name": "blocks.2.hook_resid_post"}},
        )
    ):
        path = saved(tmp_path / str(number), config)
        assert wb.import_directions(path, STAMP, features=[1]).layers == (2,)
    path = saved(tmp_path / "layers.2", {"d_in": 24}, name="sae.safetensors")
    assert wb.import_directions(path, STAMP, features=[1]).layers == (2,)
    path = saved(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"does not say which block.* give hook="):
        wb.import_directions(path, STAMP, features=[1])
    assert wb.import_directions(path, STAMP, features=[1], hook="layers.4").layers == (4,)


def test_features_are_chosen_and_must_be_there(tmp_path):
    path = saved(tmp_path, {"hook_name": "layers.2"})
    assert recognise(path) == "sae"
    with pytest.raises(ConfigError, match="features="):
        wb.import_directions(path, STAMP)
    for number in (40, -1):
        with pytest.raises(MismatchError, match=f"features 0 to 39, not {number}"):
            wb.import_directions(path, STAMP, features=[1, number])
    with pytest.raises(FormatError, match="names must differ"):
        wb.import_directions(path, STAMP, features=[1, 1])


def test_bfloat16_decoders_are_widened_without_loss(tmp_path):
    path = saved(tmp_path, {"hook_name": "layers.2"}, DECODER.bfloat16())
    found = wb.import_directions(path, STAMP, features=[5])
    np.testing.assert_array_equal(found.vectors[0, 0], DECODER[5].bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("decoder", "error", "message"),
    [
        (torch.ones(FEATURES, 32), MismatchError, "W_dec has width 32, but tiny has width 24"),
        (DECODER.T, MismatchError, "W_dec has width 40"),
        (torch.ones(24), FormatError, r"shape \[24\]"),
        (torch.full((FEATURES, 24), torch.nan), FormatError, "not finite"),
    ],
)
def test_another_decoder_is_refused(tmp_path, decoder, error, message):
    path = saved(tmp_path, {"hook_name": "layers.2"}, decoder)
    with pytest.raises(error, match=message):
        wb.import_directions(path, STAMP, features=[1])


def test_a_block_that_the_model_lacks_a_site_that_is_not_wanted_and_a_cut_file(tmp_path):
    path = saved(tmp_path, {"hook_name": "layers.6"})
    with pytest.raises(FormatError, match=r"layers \(6,\) are not all among the blocks 0 to 5"):
        wb.import_directions(path, STAMP, features=[1])
    (tmp_path / "cfg.json").write_text(json.dumps({"hook_name": "layers.2.mlp"}))
    with pytest.raises(MismatchError, match=r"site is 'resid_post' in the call.*'mlp_out'"):
        wb.import_directions(path, STAMP, features=[1], site="resid_post")
    (tmp_path / "cfg.json").write_text("{")
    with pytest.raises(FormatError, match=r"cfg\.json is damaged"):
        wb.import_directions(path, STAMP, features=[1])
    (tmp_path / "cfg.json").write_text(json.dumps({"hook_name": "layers.2"}))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FormatError, match="truncated or damaged"):
        wb.import_directions(path, STAMP, features=[1])


def test_an_autoencoder_is_described_without_a_model(tmp_path):
    path = saved(tmp_path, {"hook_name": "layers.2", "model_name": "tiny"})
    found = describe_foreign(path)
    assert (found["features"], found["width"], found["hook"]) == (40, 24, "layers.2")
    assert found["model_name"] == "tiny"
