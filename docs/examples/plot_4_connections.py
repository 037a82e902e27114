"""
Which connections, and when not to trust them
=============================================

Where in the brain does a model look? Three questions decide whether the answer means anything: does it name the
connections that carry the effect (here we planted them), does it come out again in other people, and does it vanish
for a model that learned nothing?
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import bnt
from bnt.cohort import square
from bnt.explain import baseline_edges, edge_map, precision, sanity_check
from bnt.splits import named_splits
from bnt.training import TrainedRun, describe, find_recipe, train_run

folder = Path(tempfile.mkdtemp())
cohort = bnt.simulate_cohort(n_subjects=240, n_rois=40, n_sites=4, effect=0.8, seed=2, out=folder / "cohort")

# %%
# One run
# -------
# ``bnt train cohort --model ridge --out run`` and ``bnt explain run cohort`` do all of this and write a page.
(split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
config = describe(cohort, "diagnosis", split, model="ridge", recipe=find_recipe("default", "ridge"))
train_run(cohort, split, config, folder / "run")
run = TrainedRun(folder / "run")

# %%
# Its connections
# ---------------
# For a linear model the *pattern* (Haufe 2014) says which connections differ with the label. Its weights also contain
# what cancels noise, and do not mean that.
train, val, test = split.rows(cohort)
baseline = baseline_edges(run, training=(cohort, train))
found = edge_map(run, cohort, test, baseline=baseline, method="pattern", training=(cohort, train))
figure, axes = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
matrix = square(found.score, diagonal=0.0)
limit = abs(matrix).max()
image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
axes.set(xlabel="ROI", ylabel="ROI")
bar = figure.colorbar(image, label="pattern")

# %%
# With the coordinates of a real atlas in ``cohort.rois``, :func:`bnt.plotting.glass_brain` draws the strongest in a
# brain.
#
# Does it name the right ones?
# ----------------------------
# Only a simulation knows which connections carry the effect.
found_planted = precision(found.score, cohort)
print(f"Planted among the strongest connections: {found_planted.top:.0%}, by chance {found_planted.chance:.0%}.")

# %%
# Does it come out again, and does a model that learned nothing give the same map?
# --------------------------------------------------------------------------------
# Refits on other samples of the training people, with the true labels and with shuffled ones. A map that is as stable
# with shuffled labels shows how the method behaves, not what differs between the groups.
check = sanity_check(config, cohort, train, val, test, n=3)
for labels, maps in (("true", check.true), ("shuffled", check.shuffled)):
    print(f"Correlation of the maps of {maps.n_maps} refits, {labels} labels: {maps.rank_correlation:.2f}")
print("The check is passed." if check.passed else "The check is not passed.")
