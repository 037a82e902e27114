"""A small cohort with ROI coordinates, a study of it, and a run with explanations, made once.

Tests of this folder share chromium.py, which pytest's importlib mode does not put on the path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))

V = 12


@pytest.fixture(scope="session")
def cohort_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 subjects of three sites; one edge differs between the classes; ROIs have places in the brain."""
    from bnt.cohort import Cohort

    rng = np.random.default_rng(0)
    n = 90
    y = np.arange(n) % 2
    matrices = np.tanh(rng.normal(0.2, 0.25, size=(n, V, V)))
    matrices[:, 0, 1] += np.where(y == 1, 0.25, -0.25)
    matrices = np.clip(np.triu(matrices, 1) + np.triu(matrices, 1).transpose(0, 2, 1), -0.95, 0.95)
    matrices[:, np.arange(V), np.arange(V)] = 1.0
    table = pd.DataFrame(
        {
            "participant_id": [f"sub-{i:03d}" for i in range(n)],
            "site": [f"site-{'ABC'[i // 2 % 3]}" for i in range(n)],
            "diagnosis": y,
            "age": np.round(rng.normal(30, 8, size=n), 2),
        }
    )
    angle = np.linspace(0, 2 * np.pi, V, endpoint=False)
    rois = pd.DataFrame(
        {
            "roi": np.arange(1, V + 1),
            "label": [f"ROI {i}" for i in range(1, V + 1)],
            "x": 45 * np.cos(angle),
            "y": 60 * np.sin(angle) - 15,
            "z": 20.0 + 15 * np.cos(3 * angle),
            "network": ["Visual", "Default", "Limbic"] * (V // 3),
        }
    )
    folder = tmp_path_factory.mktemp("report") / "cohort"
    levels = {"diagnosis": {"0": "control", "1": "ASD"}}
    Cohort(matrices.astype(np.float32), table, rois, levels=levels, atlas="ring").save(folder)
    return folder


@pytest.fixture(scope="session")
def study(cohort_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on three splits, as ``bnt compare`` makes them."""
    from bnt.cli._main import main

    folder = tmp_path_factory.mktemp("study") / "study"
    models = ["--models", "bnt:n_clusters=2,n_heads=2,ffn=8,recipe.lr=0.001", "logistic"]
    words = ["compare", str(cohort_folder), *models, "--splits", "3", "--change", "epochs=2", "ema=0.0"]
    assert main([*words, "--jobs", "1", "--permutations", "50", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def explained_run(study: Path) -> Path:
    """A run of the study with what ``bnt explain`` leaves: a picture with its caption and data, and edges."""
    from matplotlib.figure import Figure

    run = next(study.glob("runs/bnt*split0*"))
    folder = run / "explain"
    folder.mkdir()
    figure = Figure(figsize=(3, 2))
    figure.add_subplot().imshow(np.eye(V))
    figure.savefig(folder / "attention.png")
    (folder / "attention.csv").write_text("a,b\n1,2\n")
    rows = [(a, b, 1.0 if (a, b) == (1, 2) else 0.01 * (a - b)) for a in range(1, V + 1) for b in range(a + 1, V + 1)]
    pd.DataFrame(rows, columns=["roi_a", "roi_b", "score"]).to_csv(folder / "edges.csv", index=False)
    notes = {
        "figures": [{"file": "attention.png", "caption": "Attention between networks.", "data": "attention.csv"}],
        "edges": {"stability_over_runs": {"n_maps": 3, "rank_correlation": 0.12}},
    }
    (folder / "explain.json").write_text(json.dumps(notes))
    return run


@pytest.fixture(scope="session")
def pages(study: Path, explained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of the study and that of the explained run."""
    from bnt.report import write_report

    folder = tmp_path_factory.mktemp("pages")
    return {
        "study": write_report(study, folder / "study.html"),
        "run": write_report(explained_run, folder / "run.html"),
    }
