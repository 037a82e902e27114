"""
Predict a score, without its confounds
======================================

Age is a score: the model is a regression, and the result is a correlation with the true value, the error in years and
R2. Motion differs with age and changes connectivity, so part of what a model finds may be motion. Confounds are
regressed out within the training set.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import mean_absolute_error, r2_score

import bnt

cohort = bnt.simulate_cohort(n_subjects=300, n_rois=40, n_sites=4, seed=4)
age = cohort.labels("age")
train, val, test = next(bnt.SiteStratifiedSplit(n_splits=1, seed=0).split(cohort, "age"))
rest = np.concatenate([train, val])

# %%
# From the connectome
# -------------------
model = bnt.BrainNetworkRegressor(model="ridge", random_state=0)
model.fit(cohort.connectomes[rest], age[rest])
predicted = model.predict(cohort.connectomes[test])
print(f"r = {np.corrcoef(predicted, age[test])[0, 1]:.2f}, R2 = {r2_score(age[test], predicted):.2f}, ", end="")
print(f"mean absolute error {mean_absolute_error(age[test], predicted):.1f} years")

figure, axes = plt.subplots(figsize=(3.6, 3.4), layout="constrained")
axes.scatter(age[test], predicted, s=14, color="#0072B2")
line = [age[test].min(), age[test].max()]
axes.plot(line, line, color="0.6", lw=1)
axes.set(xlabel="age (years)", ylabel="predicted age (years)")

# %%
# What motion alone gives
# -----------------------
# Anything a connectome adds must be beyond this. ``bnt compare cohort --label age --models ridge --confounds
# mean_fd`` does the same on many splits and prints both rows.
motion = cohort.participants["mean_fd"].to_numpy(float)
slope, start = np.polyfit(motion[rest], age[rest], 1)
print(f"r of age with what motion predicts: {np.corrcoef(start + slope * motion[test], age[test])[0, 1]:.2f}")
