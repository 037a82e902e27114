"""
A study on a cluster
====================

A study is a folder. Its runs are independent, so they can run in processes of this machine, on Ray, or as SLURM jobs;
the command is the same, may be killed at any moment, and resumes to the same numbers.

.. code-block:: sh

   bnt compare cohort --models paper linear-ensemble --splits 20 --out study --engine ray --address auto
   bnt report study --watch      # a live page, from another shell
"""

import tempfile
from pathlib import Path

import bnt
from bnt.plotting import paired_plot
from bnt.studies import Study, Variant, run_table, summary_table
from bnt.training import find_recipe

# %%
# What a command does
# -------------------
# One job per model, split and seed. Here two processes of this machine work on six jobs.
folder = Path(tempfile.mkdtemp())
cohort = bnt.simulate_cohort(n_subjects=120, n_rois=24, n_sites=3, effect=0.8, seed=0, out=folder / "cohort")
variants = [Variant(name, name, recipe=find_recipe("default", name)) for name in ("svm", "ridge")]
splits = bnt.splits.named_splits(cohort, "diagnosis", "site-stratified", n_splits=3)
study = Study(folder / "study", cohort, "diagnosis", variants, splits)
print(len(study.todo()), "jobs to do")
study.run(engine="local", n_processes=2)
print(len(study.todo()), "jobs to do")

# %%
# Resuming
# --------
# The same study with one more model does only what is missing.
more = Study(folder / "study", cohort, "diagnosis", [*variants, Variant("logistic", "logistic")], splits)
print(len(more.todo()), "jobs to do")
more.run(n_processes=1)
runs = run_table(folder / "study")
print(summary_table(runs)[["variant", "auroc", "auroc_sd"]].round(3).to_string(index=False))

# %%
# The picture of such a study: each dot is one job, and the jobs of one split are joined.
paired_plot(runs.pivot(index="split", columns="variant", values="auroc"))
