"""Appendix E: numbers of parameters, computed exactly, beside the printed ones. Nothing is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.models._catalog import count_parameters
from bnt.paper._drawing import beside
from bnt.paper._printed import PARAMETERS
from bnt.paper._texts import rows
from bnt.plotting._style import canvas, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bnt.paper._plan import Plan

SIZES = {"ABIDE": (200, 100), "ABCD": (360, 512)}  # ROIs, volumes
# Name, the method printed, our model, options, options on ABCD on top, what the comparison says.
MODELS: tuple[tuple[str, str, str, dict[str, Any], dict[str, Any], str], ...] = (
    ("BrainNetCNN", "BrainNetCNN", "brainnetcnn", {}, {}, "ABIDE fits; on ABCD the paper repeats the ABIDE number"),
    ("BrainGB (GAT)", "BrainGB", "braingb", {}, {}, "fits"),
    (
        "FBNetGen",
        "FBNetGen",
        "fbnetgen",
        {"n_volumes": 100},
        {"n_volumes": 512, "encoder": "cnn", "window": 8, "hidden": 8},
        "fits with a GRU on ABIDE and a CNN on ABCD",
    ),
    ("SAN", "SAN", "san", {}, {}, "fits; nearly all of it is the MLP on the concatenation"),
    ("Graphormer", "Graphormer", "graphormer", {}, {}, "near; the authors' version is not public"),
    ("VanillaTF", "VanillaTF", "vanilla", {}, {}, "the paper prints ten times too many"),
    ("BNT, K = 100", "BrainNetTF", "bnt-released", {}, {}, "fits: the main table must have used K = 100"),
    ("BNT, K = 10", "", "bnt-released", {"n_clusters": 10}, {}, "would print 3.8M and 11.0M"),
    ("BNT, as the equations read", "", "bnt", {}, {}, "without the hidden MLP"),
    ("BrainGNN", "", "braingnn", {}, {}, "not printed"),
    ("BrainNetGNN", "", "brainnetgnn", {"n_volumes": 100}, {"n_volumes": 512}, "not printed"),
    ("DGM", "", "dgm", {}, {}, "not printed"),
)


def number(text: str) -> float:
    """Return a printed count as a number; ``57.7M6`` is read as 57.7 million."""
    return float(text.partition("M")[0]) * 1e6 if text else float("nan")


def count() -> pd.DataFrame:
    """Return one row a model: computed and printed, for 200 and 360 ROIs."""
    found = []
    for name, method, model, options, on_abcd, verdict in MODELS:
        printed = PARAMETERS.get(method, ("", ""))
        row: dict[str, Any] = {"name": name, "model": model}
        for i, (dataset, (n_rois, _)) in enumerate(SIZES.items()):
            chosen = {**options, **(on_abcd if dataset == "ABCD" else {})}
            row[f"V{n_rois}"] = count_parameters(model, n_rois, 2, **chosen)
            row[f"printed_V{n_rois}"] = printed[i]
        found.append(row | {"verdict": verdict})
    return pd.DataFrame(found)


def make(plan: Plan | None = None) -> tuple[pd.DataFrame, str, Figure]:
    """Count, and return table, Markdown and figure."""
    table = count()
    body = [
        [
            one["name"],
            f"{one['V200']:,}",
            one["printed_V200"] or "–",
            f"{one['V360']:,}",
            one["printed_V360"] or "–",
            one["verdict"],
        ]
        for one in table.to_dict("records")
    ]
    text = (
        "# Parameters\n\n"
        + rows(["model", "V = 200", "paper, ABIDE", "V = 360", "paper, ABCD", "verdict"], body)
        + "\nFrozen centres are counted, as the authors' counter does. The paper says that BNT is smaller than the "
        "other transformers;\nit has 2.5 and 3.4 times the parameters of VanillaTF and three times or more those of "
        "Graphormer.\n"
    )
    return table, text, draw(table)


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel for each number of ROIs."""
    figure, panels = canvas(height=0.9 + 0.25 * len(table), columns=2)
    for i, (axes, (dataset, (v, _))) in enumerate(zip(panels, SIZES.items())):
        ours = np.column_stack([table[f"V{v}"].to_numpy(dtype=float), np.full(len(table), np.nan)])
        printed = np.array([[number(text), np.nan] for text in table[f"printed_V{v}"]])
        beside(axes, table["name"].tolist() if i == 0 else [""] * len(table), ours, printed, legend=False)
        axes.set_xscale("log")
        axes.set(xlabel="parameters", xlim=(5e3, 4e8))
        axes.set_title(f"{dataset}, {v} ROIs", fontsize=8)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
