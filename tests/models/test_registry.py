"""From a name to a model."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model, find_entry, list_models, model_options
from bnt.models._catalog import CATALOG


def test_names_are_unique_and_families_known():
    names = [entry.name for entry in CATALOG]
    assert len(set(names)) == len(names)
    assert {entry.family for entry in CATALOG} <= {"network", "classical", "hybrid"}
    assert sorted(
        list_models(family="network") + list_models(family="classical") + list_models(family="hybrid")
    ) == sorted(names)


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_every_entry_leads_to_a_constructor_that_takes_its_presets(entry):
    assert callable(entry.constructor())
    assert set(entry.presets) <= set(model_options(entry.name))
    assert entry.summary
    assert entry.paper or not entry.trains_in_epochs


@pytest.mark.parametrize("name", [e.name for e in CATALOG if e.trains_in_epochs and not e.needs_series])
def test_every_network_answers_learns_and_can_be_copied(name):
    torch.manual_seed(0)
    presets = model_options(name)
    options = {"n_clusters": 5} if presets.get("n_clusters", 0) and presets["n_clusters"] > 24 else {}
    net = create_model(name, 24, 3, **options)
    x = torch.randn(4, 24, 24) * 0.3
    x = (x + x.mT) / 2
    out = net(x, target=torch.eye(3)[[0, 1, 2, 0]])  # soft labels, as the loop gives them
    assert out.logits.shape == (4, 3)
    (out.logits.logsumexp(1).sum() + (0 if out.loss is None else out.loss)).backward()
    assert any(p.grad is not None and p.grad.any() for p in net.parameters())
    twin = copy.deepcopy(net.eval())
    twin.load_state_dict(net.state_dict())
    answers = []
    for model in (net, twin):
        torch.manual_seed(1)  # some released models are random in evaluation too
        with torch.no_grad():
            answers.append(model(x).logits)
    torch.testing.assert_close(*answers)


def test_presets_give_way_to_the_users_options():
    assert model_options("bnt-released")["n_clusters"] == 100
    net = create_model("bnt-released", 20, n_clusters=4)
    assert net.readout.n_clusters == 4


def test_misspelt_names_are_answered_with_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'vanilla'"):
        find_entry("vanila")


def test_unknown_options_are_answered_with_all_there_are():
    with pytest.raises(BadInput, match="'n_cluster'; did you mean 'n_clusters'.*dropout=0.1"):
        create_model("bnt", 20, n_cluster=3)


def test_a_model_needs_a_class():
    with pytest.raises(BadInput, match="n_classes is 0"):
        create_model("bnt", 20, 0)


def test_counting_allocates_no_weights_and_draws_no_numbers():
    state = torch.get_rng_state()
    assert count_parameters("bnt", 5000, n_clusters=10) > 5000**2
    assert torch.equal(torch.get_rng_state(), state)


def test_listing_models_does_not_import_torch():
    code = "import sys, bnt.models; bnt.models.list_models(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
