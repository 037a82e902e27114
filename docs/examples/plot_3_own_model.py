"""
Compare your own model
======================

A model of your own is a file and a class in it. Any command that takes a model takes ``my_model.py:MyModel``, so your
model is trained, selected and tested like the others, on the same splits, and the difference is tested.
"""

import tempfile
from pathlib import Path

import bnt
from bnt.plotting import forest_plot, paired_plot
from bnt.studies import Study, Variant, comparison_table, run_table
from bnt.training import find_recipe

folder = Path(tempfile.mkdtemp())

# %%
# The model
# ---------
# A torch module made from ``n_rois`` and ``n_classes``; it gets a batch of connectomes (B, V, V) and returns logits
# (B, C). ``bnt models --new my_model.py`` writes a file to start from.
file = folder / "my_model.py"
file.write_text('''
import torch
from torch import nn


class RowMLP(nn.Module):
    """The same small network on the row of every ROI, then the mean over ROIs."""

    def __init__(self, n_rois, n_classes=2, hidden=32):
        super().__init__()
        self.row = nn.Sequential(nn.Linear(n_rois, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_classes)

    def forward(self, x):
        return self.head(self.row(x).mean(1))
''')

# %%
# The study
# ---------
# The same as ``bnt compare cohort --models ridge my_model.py:RowMLP --splits 5 --out study``.
cohort = bnt.simulate_cohort(n_subjects=200, n_rois=30, n_sites=4, effect=1.0, seed=1, out=folder / "cohort")
words = {"ridge": "ridge", "row MLP": f"{file}:RowMLP"}
variants = [
    Variant(name, model, {}, "default", find_recipe("default", model, epochs=6)) for name, model in words.items()
]
splits = bnt.splits.named_splits(cohort, "diagnosis", "site-stratified", n_splits=5)
study = Study(folder / "study", cohort, "diagnosis", variants, splits)
failed = study.run(n_processes=1)
runs = run_table(folder / "study")
print(failed or runs[["variant", "split", "auroc", "accuracy"]].round(3).to_string(index=False))

# %%
# Each dot is one split; the lines join the same split, because only differences within a split count.
paired_plot(runs.pivot(index="split", columns="variant", values="auroc"))

# %%
# The difference, with an interval corrected for the training people that splits share.
tests = comparison_table(folder / "study", runs, "ridge")
print(tests[["variant", "difference", "low", "high", "p_corrected_holm"]].round(3).to_string(index=False))
forest_plot(tests)
