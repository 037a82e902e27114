"""
The paper's tables and theorems
===============================

Every table and figure of *Brain Network Transformer* is a study that can be made again on any cohort, with the
printed numbers beside ours. ``bnt reproduce table1 cohort --out table1`` makes Table 1; here are two of the quick
ones, and what OCRead's theorem says.
"""

import matplotlib.pyplot as plt
import torch

import bnt
from bnt.models import count_parameters
from bnt.nn import OCRead

# %%
# Sizes
# -----
# The paper prints 4.0 million parameters for ABIDE's 200 ROIs. That is the released model, with a hidden MLP over the
# whole matrix which the paper does not mention; the model of its equations is smaller.
names = ["bnt-released", "bnt", "vanilla", "brainnetcnn", "braingb", "graphormer"]
sizes = [count_parameters(name, n_rois=200) / 1e6 for name in names]
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.barh(names[::-1], sizes[::-1], color="#0072B2")
axes.set_xlabel("parameters at V = 200 (millions)")

# %%
# OCRead
# ------
# Equation 2: every ROI is assigned to K clusters by the products of its embedding with K orthonormal centres; the
# graph is the list of the clusters' sums.
torch.manual_seed(0)
readout = OCRead(width=40, n_clusters=4)
print((readout.centres @ readout.centres.T).round(decimals=3))

cohort = bnt.simulate_cohort(n_subjects=20, n_rois=40, n_sites=2, seed=0)
pooled = readout(cohort.batch(range(20)))
print(pooled.assignments.shape, pooled.embedding.shape)

# %%
# Do orthonormal centres tell ROIs of different networks apart before any training? The theorem speaks of variance
# over assignments; the mean assignment of each network shows it.
networks = cohort.rois["network"]
mean = pooled.assignments.mean(0).detach().numpy()
table = {name: mean[(networks == name).to_numpy()].mean(0) for name in networks.unique()}
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
image = axes.imshow(list(table.values()), cmap="viridis", aspect="auto")
axes.set_yticks(range(len(table)), list(table))
axes.set_xticks(range(4), [f"cluster {k + 1}" for k in range(4)])
figure.colorbar(image, label="mean assignment")

# %%
# ``bnt theory`` checks both theorems by quadrature and simulation; :doc:`/theory` has the result, and where the proof
# fails.
