"""From a name to a model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bnt.errors import BadInput
from bnt.models import count_parameters, create_model, expand_models, find_entry, list_models, model_options
from bnt.models._catalog import CATALOG


def test_names_are_unique_and_families_known():
    names = [entry.name for entry in CATALOG]
    assert len(set(names)) == len(names)
    assert {entry.family for entry in CATALOG} <= {"network", "classical", "hybrid"}
    assert sorted(
        list_models(family="network") + list_models(family="classical") + list_models(family="hybrid")
    ) == sorted(names)


def test_names_are_found_by_wildcards():
    assert list_models("bnt*") == ["bnt", "bnt-released"]
    assert list_models("*-released", family="classical") == []
    assert list_models("BNT") == []


def test_groups_and_patterns_stand_for_several_models():
    classical = expand_models(["classical"])
    assert "svm" in classical
    assert "bnt" not in classical
    assert set(expand_models(["paper"])) >= {"bnt", "dgm-released"}
    assert expand_models(["bnt*:ffn=8", "bnt:ffn=8", "svm"])[:2] == ["bnt:ffn=8", "bnt-released:ffn=8"]
    assert expand_models(["r*e", "ridge", "ridge"]) == ["ridge"]
    with pytest.raises(BadInput, match=r"nosuch\*"):
        expand_models(["nosuch*"])


def test_entries_say_what_they_are():
    assert find_entry("bnt").trains_in_epochs
    assert not find_entry("kernel-transformer").trains_in_epochs
    assert not find_entry("bnt").is_own


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.name)
def test_every_entry_leads_to_a_constructor_that_takes_its_presets(entry):
    assert callable(entry.constructor())
    assert set(entry.presets) <= set(model_options(entry.name))
    assert entry.summary
    assert entry.paper or not entry.trains_in_epochs


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
