"""Com-BrainTF: networks one at a time against torch's own layers, its size, and where networks come from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models import count_parameters, create_model
from bnt.training import TrainedRun
from bnt.training._config import options_for

NAMES = ["b", "a", "b", "c", "a", "b", "c", "a", "b", "b", "a", "c"]


def torch_layer(ours) -> nn.TransformerEncoderLayer:
    """Torch's own layer with the same weights."""
    width, ffn = ours.linear1.in_features, ours.linear1.out_features
    layer = nn.TransformerEncoderLayer(width, ours.self_attn.num_heads, ffn, batch_first=True)
    layer.load_state_dict(ours.state_dict())
    return layer.eval()


@pytest.mark.parametrize("training", [True, False])
def test_equals_one_call_of_torchs_layer_per_network(training):
    torch.manual_seed(0)
    net = create_model("com-braintf", 12, networks=NAMES, n_heads=2, ffn=16, n_clusters=4, dropout=0.0).train(training)
    x = torch.randn(3, 12, 12)
    local, whole = torch_layer(net.local), torch_layer(net.whole)
    h, prompts = torch.empty(3, 12, 12), []
    for c, name in enumerate("abc"):
        rois = [i for i, of in enumerate(NAMES) if of == name]
        out = local(torch.cat([net.prompts[c].expand(3, 1, -1), x[:, rois]], 1))
        prompts.append(out[:, 0])
        h[:, rois] = out[:, 1:]
    prompt = net.prompt(torch.cat(prompts, 1))
    z = whole(torch.cat([prompt[:, None], h], 1))[:, 1:]
    torch.testing.assert_close(net(x).logits, net.head(net.readout(z).embedding), atol=1e-5, rtol=1e-4)


def test_local_attention_stays_within_networks():
    torch.manual_seed(0)
    net = create_model("com-braintf", 12, networks=NAMES, n_heads=2, ffn=16, n_clusters=4).eval()
    within, _ = net(torch.randn(3, 12, 12), explain=True).attention
    same = torch.tensor([[a == b for b in NAMES] for a in NAMES])
    assert (within[..., ~same] == 0).all()
    assert (within[..., same] > 0).all()


def test_size_is_the_published_one_less_the_layers_that_are_never_used():
    # Counted on the published class at its defaults: 8,386,834, of which two MLPs of 1,844,424 get no gradient.
    assert count_parameters("com-braintf", 200) == 8_386_834 - 2 * 1_844_424


def test_a_number_of_networks_that_is_not_that_of_rois_is_refused():
    with pytest.raises(BadInput, match=r"11 names.*12 ROIs"):
        create_model("com-braintf", 12, networks=NAMES[1:], n_heads=2)


@pytest.fixture(scope="module")
def cohort():
    return bnt.simulate_cohort(n_subjects=40, n_rois=16, n_sites=2, seed=0, series=False)


def test_a_run_reads_the_networks_of_the_roi_table(cohort):
    assert options_for(cohort, "com-braintf", {})["networks"] == cohort.rois["network"].tolist()


def test_networks_of_another_column_or_of_a_file(cohort, tmp_path):
    names = [f"n{i % 3}" for i in range(16)]
    (tmp_path / "networks.txt").write_text("\n".join(names) + "\n")
    for asked in (str(tmp_path / "networks.txt"), names):
        assert options_for(cohort, "com-braintf", {"networks": asked})["networks"] == names
    assert options_for(cohort, "com-braintf", {"networks": "label"})["networks"] == cohort.rois["label"].tolist()


def test_a_cohort_without_networks_is_refused_with_what_to_do(cohort):
    bare = bnt.Cohort(cohort.connectomes, cohort.participants, cohort.rois.assign(network=""))
    with pytest.raises(BadInput, match="networks to a column") as refused:
        options_for(bare, "com-braintf", {})
    assert "\n" not in str(refused.value)
    with pytest.raises(BadInput, match="'yeo' is neither a file nor a column"):
        options_for(cohort, "com-braintf", {"networks": "yeo"})


def test_a_trained_run_predicts_with_the_networks_it_was_trained_with(cohort, tmp_path):
    cohort.save(tmp_path / "cohort")
    words = ["--model", "com-braintf", "--option", "n_heads=2", "ffn=8", "n_clusters=2"]
    words += ["--change", "batch_size=8", "epochs=1"]
    assert main(["train", str(tmp_path / "cohort"), *words, "--out", str(tmp_path / "run")]) == 0
    trained = TrainedRun(tmp_path / "run")
    assert trained.config.options["networks"] == cohort.rois["network"].tolist()
    bare = bnt.Cohort(cohort.connectomes, cohort.participants, cohort.rois.assign(network=""))
    assert trained.learner.predict(bare).shape == (40, 2)
