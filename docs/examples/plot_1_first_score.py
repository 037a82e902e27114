"""
A first cohort and a first honest score
=======================================

From connectomes to a test score that a reviewer can repeat: simulate people from several sites, look at them, split
them, train on one part, choose on another and score the third once. With data of your own, replace the first step by
:func:`bnt.load_cohort`.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

import bnt
from bnt.plotting import roc_curves

# %%
# A cohort
# --------
# Connectomes are vectors of V(V-1)/2 edges in nilearn's order. Half of these people are patients; some connections of
# theirs are stronger.
cohort = bnt.simulate_cohort(n_subjects=240, n_rois=30, n_sites=4, effect=1.0, seed=0)
print(cohort)
print(cohort.participants.head())

# %%
# A split
# -------
# Sites and classes are shared out evenly over the three sets, and nobody is in two of them. A person with two scans,
# twins, or two copies of one scan stay on one side.
split = bnt.SiteStratifiedSplit(n_splits=1, seed=0)
train, val, test = next(split.split(cohort, "diagnosis"))
print(len(train), "training,", len(val), "validation,", len(test), "test")

# %%
# Two models
# ----------
# Every model has scikit-learn's interface. The linear one is hard to beat in samples of this size: always put one
# beside a network.
y = cohort.labels("diagnosis")
rest = np.concatenate([train, val])
scores = {}
for name, more in {"ridge": {}, "bnt": {"options": {"n_clusters": 4, "ffn": 32, "n_heads": 2}, "epochs": 6}}.items():
    model = bnt.BrainNetworkClassifier(model=name, random_state=0, **more)
    model.fit(cohort.connectomes[rest], y[rest])
    scores[name] = (y[test], model.predict_proba(cohort.connectomes[test])[:, 1])
    print(f"{name}: AUROC {roc_auc_score(*scores[name]):.3f}")

# %%
# One test set of about 50 people says little: the standard error of its AUROC is some 7 points. ``bnt compare``
# repeats this on many splits and tests the difference with a correction for the people that splits share.
roc_curves(scores)
