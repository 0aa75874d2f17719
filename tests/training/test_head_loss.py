import pytest
import torch
from workbench_training import head_loss
from workbench_training.head_loss import HeadLoss, chunked_loss, is_plain_head

IDS = torch.arange(2 * 24).reshape(2, 24) * 37 % 96


def plain(h, weight, bias, labels):
    logits = torch.nn.functional.linear(h, weight, bias).float()
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize("elements", [1, 97 * 3, 2**24])
@pytest.mark.parametrize("biased", [False, True])
def test_chunks_of_any_size_give_the_loss_and_gradient_of_the_whole(elements, biased, monkeypatch):
    monkeypatch.setattr(head_loss, "FEWER", elements)
    torch.manual_seed(0)
    weight, bias = torch.randn(97, 16), torch.randn(97) if biased else None
    labels = torch.randint(97, (20,))
    labels[[0, 7, 19]] = -100
    grads, losses = [], []
    for way in (HeadLoss.apply, plain):
        h = (torch.randn(20, 16, generator=torch.Generator().manual_seed(1)) * 3).requires_grad_()
        loss = way(h, weight, bias, labels)
        (loss * torch.linspace(-1, 2, 20)).sum().backward()
        losses.append(loss.detach())
        grads.append(h.grad)
    torch.testing.assert_close(losses[0], losses[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-5)


def test_no_chunk_holds_more_logits_than_it_should(monkeypatch):
    monkeypatch.setattr(head_loss, "FEWER", 97 * 3)
    sizes = []
    stock = head_loss._chunk
    monkeypatch.setattr(head_loss, "_chunk", lambda h, *a: (sizes.append(len(h)), stock(h, *a))[1])
    HeadLoss.apply(torch.randn(10, 4), torch.randn(97, 4), None, torch.zeros(10, dtype=torch.long))
    assert sizes == [3, 3, 3, 1]


@pytest.mark.parametrize("items", [None, torch.tensor(30)])
def test_the_models_loss_is_the_same_over_its_own_or_a_given_number_of_tokens(
    items, network, adapted
):
    model = adapted(network())
    labels = IDS.clone()
    labels[:, 3:6] = -100
    more = {} if items is None else {"num_items_in_batch": items}
    theirs = model(input_ids=IDS, labels=labels, **more).loss
    with chunked_loss(model) as chunked:
        found = model(input_ids=IDS, labels=labels, **more)
    assert chunked
    assert found.loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert found.logits is None


def test_position_ids_reach_the_decoder(network, adapted):
    model = adapted(network())
    positions = torch.arange(24).repeat(2, 1) % 10
    theirs = model(input_ids=IDS, labels=IDS, position_ids=positions).loss
    with chunked_loss(model):
        ours = model(input_ids=IDS, labels=IDS, position_ids=positions).loss
        whole = model(input_ids=IDS, labels=IDS).loss
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert abs(ours.item() - whole.item()) > 1e-4


def test_without_labels_or_gradients_the_model_answers_with_its_logits(network, adapted):
    model = adapted(network())
    theirs = model(input_ids=IDS).logits
    with chunked_loss(model):
        assert torch.equal(model(input_ids=IDS).logits, theirs)
        with torch.no_grad():
            assert model(input_ids=IDS, labels=IDS).logits is not None


def test_capped_scaled_and_trained_heads_keep_their_own_loss(network, adapted):
    assert is_plain_head(network())
    assert not is_plain_head(network("gemma2"))
    assert not is_plain_head(network("granite", logits_scaling=3.0))
    assert not is_plain_head(network("cohere", logit_scale=0.5))
    trained = adapted(network())
    trained.get_base_model().lm_head.weight.requires_grad_(True)
    with chunked_loss(trained) as chunked:
        assert not chunked


def test_a_head_tied_to_the_embedding_is_plain_while_it_is_frozen(network, adapted):
    model = adapted(network(tie_word_embeddings=True))
    theirs = model(input_ids=IDS, labels=IDS).loss
    with chunked_loss(model) as chunked:
        ours = model(input_ids=IDS, labels=IDS).loss
    assert chunked
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
