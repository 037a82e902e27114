"""What the paper prints, and what we count: docs/facts.md, Models and Printed results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bnt.cohort._triangle import Networks
from bnt.paper import _plan as printed
from bnt.paper._cost import count_all, printed_count
from bnt.paper._figures import own_and_other
from bnt.paper._plan import PRESETS, Plan

# docs/facts.md, Printed results: AUROC / accuracy / sensitivity / specificity, as one text a data set.
TABLE1 = {
    "ABIDE": """SAN 71.3+-2.1/65.3+-2.9/55.4+-9.2/68.3+-7.5; Graphormer 63.5+-3.7/60.8+-2.7/78.7+-22.3/36.7+-23.5;
 VanillaTF 76.4+-1.2/65.2+-1.2/66.4+-11.4/71.1+-12.0; BrainGNN 62.4+-3.5/59.4+-2.3/36.7+-24.0/70.7+-19.3;
 BrainGB 69.7+-3.3/63.6+-1.9/63.7+-8.3/60.4+-10.1; BrainNetCNN 74.9+-2.4/67.8+-2.7/63.8+-9.7/71.0+-10.2;
 FBNETGNN 75.6+-1.2/68.0+-1.4/64.7+-8.7/62.4+-9.2; BrainNetGNN 55.3+-1.9/51.2+-5.4/67.7+-37.5/33.9+-34.2;
 DGM 52.7+-3.8/60.7+-12.6/53.8+-41.2/51.1+-40.9; BrainNetTF 80.2+-1.0/71.0+-1.2/72.5+-5.2/69.3+-6.5""",
    "ABCD": """SAN 90.1+-1.2/81.0+-1.3/84.9+-3.5/77.5+-4.1; Graphormer 89.0+-1.4/80.2+-1.3/81.8+-11.6/82.4+-7.4;
 VanillaTF 94.3+-0.7/85.9+-1.4/87.7+-2.4/82.6+-3.9; BrainGB 91.9+-0.3/83.1+-0.5/84.6+-4.3/81.5+-3.9;
 BrainNetCNN 93.5+-0.3/85.7+-0.8/87.9+-3.4/83.0+-4.4; FBNETGNN 94.5+-0.7/87.2+-1.2/87.0+-2.5/86.7+-2.8;
 BrainNetGNN 75.3+-5.2/67.5+-4.7/67.7+-5.7/68.0+-6.5; DGM 76.8+-19.0/68.6+-8.1/40.5+-29.7/95.6+-4.2;
 BrainNetTF 96.2+-0.3/88.4+-0.4/89.4+-2.6/88.4+-1.5""",
}
# docs/facts.md, Printed results: SAN / Graphormer / VanillaTF.
TABLE2 = {
    "ABIDE": "MEAN 63.7/50.1/73.4; MAX 61.9/54.5/75.6; SUM 62.0/54.1/70.3; SortPooling 68.7/51.3/72.4; "
    "DiffPool 57.4/50.5/62.9; CONCAT 71.3/63.5/76.4; OCRead 70.6/64.9/80.2",
    "ABCD": "MEAN 88.5/87.6/91.3; MAX 87.4/81.6/94.4; SUM 84.2/71.5/91.6; SortPooling 84.6/86.7/89.9; "
    "DiffPool 78.1/70.0/83.9; CONCAT 90.1/89.0/94.3; OCRead 91.2/90.2/96.2",
}
# docs/facts.md, Models: V = 200 and V = 360.
COUNTS = {
    "BrainNetCNN": (933_277, 1_650_077),
    "BrainGB (GAT)": (1_082_554, 1_492_154),
    "VanillaTF": (1_564_602, 3_268_602),
    "BNT, K = 100": (3_980_890, 11_197_210),
    "BNT, K = 10": (3_778_570, 10_980_490),
    "BrainGNN": (93_282, 141_922),
    "BrainNetGNN": (13_321_182, 23_872_862),
    "DGM": (8_375, 13_495),
}


@pytest.mark.parametrize("dataset", printed.DATASETS)
def test_table1_is_the_printed_one(dataset):
    rows = dict(row.strip().split(" ", 1) for row in TABLE1[dataset].split(";"))
    for method, cells in rows.items():
        expected = [tuple(map(float, cell.split("+-"))) for cell in cells.split("/")]
        assert list(printed.TABLE1[dataset][method]) == expected, method
    unprinted = {m for m, v in printed.TABLE1[dataset].items() if np.isnan(v[0][0])}
    assert unprinted == ({"BrainGNN"} if dataset == "ABCD" else set())  # out of memory
    assert set(printed.TABLE1[dataset]) == set(rows) | unprinted


@pytest.mark.parametrize("dataset", printed.DATASETS)
def test_table2_is_the_printed_one(dataset):
    rows = dict(row.strip().split(" ", 1) for row in TABLE2[dataset].split(";"))
    found = {name: "/".join(f"{v[0]:.1f}" for v in values) for name, values in printed.TABLE2[dataset].items()}
    assert found == rows


def test_main_table_rows_are_the_concat_and_ocread_rows_of_table2():
    # docs/facts.md, Printed results: the CONCAT rows are the main table's baselines, OCRead on VanillaTF is BNT.
    for dataset in printed.DATASETS:
        for i, backbone in enumerate(printed.BACKBONES):
            assert printed.TABLE2[dataset]["CONCAT"][i] == printed.TABLE1[dataset][backbone][0]
        assert printed.TABLE2[dataset]["OCRead"][2][0] == printed.TABLE1[dataset]["BrainNetTF"][0][0]
        assert printed.FEATURES[dataset]["profile"] == printed.TABLE1[dataset]["VanillaTF"][0]


@pytest.fixture(scope="module")
def tables():
    """The rows of the paper's tables by label: every ``mean±SD`` of a row, left to right."""
    file = Path(__file__).resolve().parents[3] / "shared" / "paper" / "brain_network_transformer.tex"
    if not file.is_file():
        pytest.skip(f"the paper is not at {file}")
    found = {}
    for text in re.findall(r"\\begin\{table.*?\\end\{table", file.read_text(), re.DOTALL):
        rows = [re.findall(r"([\d.]+)±([\d.]+)", line) for line in text.splitlines()]
        label = re.search(r"\\label\{(.*?)\}", text)
        if label:
            found[label.group(1)] = [[(float(mean), float(sd)) for mean, sd in row] for row in rows if row]
    return found


def test_table2_features_running_time_and_difference_are_the_papers_own_rows(tables):
    def both(value):
        return [one for dataset in printed.DATASETS for one in value(dataset)]

    assert tables["tab:readout"] == [both(lambda d, r=r: printed.TABLE2[d][r]) for r in printed.TABLE2["ABIDE"]]
    for label, table in (
        ("tab:node_feature", printed.FEATURES),
        ("tab:runningtime", printed.RUNTIME),
        ("tab:diff", printed.DIFFERENCE),
    ):
        assert tables[label] == [both(lambda d, r=r, t=table: [t[d][r]]) for r in table["ABIDE"]]


@pytest.fixture(scope="module")
def counted():
    return count_all().set_index("name")


def test_parameters_are_those_of_the_facts(counted):
    table = counted
    for name, (small, large) in COUNTS.items():
        assert (table.loc[name, "V200"], table.loc[name, "V360"]) == (small, large), name
    assert 554_654 <= table.loc["FBNetGen", "V200"] <= 554_694
    assert table.loc["FBNetGen", "V360"] == 1_181_738
    assert 57.67e6 <= table.loc["SAN", "V200"] <= 57.70e6
    assert 186.71e6 <= table.loc["SAN", "V360"] <= 186.74e6
    assert table.loc["Graphormer", "V200"] == pytest.approx(1_241_002, rel=0.02)  # the fork is not public: +-2 %
    assert table.loc["Graphormer", "V360"] == pytest.approx(1_650_602, rel=0.02)


def test_counts_that_fit_round_to_what_is_printed(counted):
    table = counted
    for name in ("BrainGB (GAT)", "SAN", "BNT, K = 100"):
        for v in (200, 360):
            text = table.loc[name, f"printed_V{v}"]
            digits = len(re.match(r"\d+\.(\d+)M", text).group(1))
            assert round(table.loc[name, f"V{v}"] / 1e6, digits) == pytest.approx(printed_count(text) / 1e6)


def test_attention_within_networks_is_told_from_attention_between_them():
    networks = Networks.from_labels(np.array(["Visual", "Visual", "Default", "Default"]))
    attention = np.where(networks.labels[:, None] == networks.labels[None, :], 0.3, 0.1)
    np.fill_diagonal(attention, 9.0)  # an ROI's attention to itself does not count
    table = own_and_other(attention, networks).set_index("network")
    assert table.loc["all", "ratio"] == pytest.approx(3.0)
    assert table.loc["Visual", "own"] == pytest.approx(0.3)
    assert table.loc["Default", "other"] == pytest.approx(0.1)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains_a_model_at_its_own_rate(preset, cohort, tmp_path):
    # With the preset full, BrainGNN and DGM were trained at 1e-4.
    plan = Plan(cohort, tmp_path, preset=preset)
    rates = {name: plan.variant(name, name).recipe.lr for name in ("bnt", "braingnn", "dgm", "brainnetgnn")}
    assert rates == {"bnt": 1e-4, "braingnn": 1e-3, "dgm": 1e-2, "brainnetgnn": 5e-4}
    assert plan.recipe_for("fbnetgen").reduction == "sum"
    assert plan.recipe_for("braingnn").epochs == plan.recipe.epochs
