"""
From XCP-D to a page
====================

From the derivatives of XCP-D to a page about a fair comparison, with the commands that you would type: import, info,
select, compare, report. The data set is invented, and written here as XCP-D 26 leaves it (names of earlier versions are
read, too): three sites, two sessions, families, motion, and a participants table as people have it.

.. image:: /figures/xcpd-study.png
   :alt: The page of the study
"""

# sphinx_gallery_thumbnail_path = 'figures/xcpd-study.png'

import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stderr
from pathlib import Path

import numpy as np
import pandas as pd

import bnt
from bnt.cli._main import main
from bnt.plotting import roc_curves

# %%
# The derivatives
# ---------------
# With data of your own, begin at the next section. ``group`` has three spellings of one class, ``age`` has decimal
# commas, the first six people of each site are three pairs of siblings, and the score ``hamd`` differs by session.
PEOPLE, ROIS, VOLUMES = 96, 30, 240
SESSIONS, SPACE = ("baseline", "followup"), "space-MNI152NLin6Asym"
place = Path(tempfile.mkdtemp())
bids, derived = place / "bids", place / "bids" / "derivatives" / "xcp_d"


def write(file, **columns):
    file.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(file, sep="\t", index=False, na_rep="n/a")


rng = np.random.default_rng(0)
people = bnt.simulate_cohort(
    n_subjects=PEOPLE, n_rois=ROIS, n_sites=3, effect=1.2, n_volumes=VOLUMES, male_share=0.5, seed=0
)
names, ill = [f"sub-{i:03d}" for i in range(1, PEOPLE + 1)], people.labels("diagnosis") == 1
labels = people.rois["label"].tolist()
group = np.where(ill, "MDD", "control").astype(object)
group[np.flatnonzero(ill)[:3]] = ["mdd", "MDD ", "mdd"]
family = np.array([f"F{i:03d}" for i in range(PEOPLE)])
for site in np.unique(people.sites):
    pairs = np.flatnonzero(people.sites == site)[:6].reshape(-1, 2)
    family[pairs[:, 1]] = family[pairs[:, 0]]
write(
    bids / "participants.tsv",
    participant_id=names,
    group=group,
    age=[f"{age:.1f}".replace(".", ",") for age in people.labels("age")],
    sex=people.labels("sex"),
    site_id=people.sites,
    family_id=family,
)
atlas = derived / "sourcedata/atlases/tpl-MNI152NLin6Asym/tpl-MNI152NLin6Asym_atlas-Simulated_dseg.tsv"
write(atlas, index=range(1, ROIS + 1), label=labels, network_label=people.rois["network"].tolist())
for name, patient, series, motion in zip(names, ill, people.timeseries, people.labels("mean_fd")):
    hamd = rng.integers(14, 30, 2) - [0, rng.integers(2, 12)] if patient else rng.integers(0, 6, 2)
    write(bids / name / f"{name}_sessions.tsv", session_id=[f"ses-{s}" for s in SESSIONS], hamd=hamd)
    for session, part in zip(SESSIONS, np.split(np.asarray(series), 2)):
        stem = derived / name / f"ses-{session}/func/{name}_ses-{session}_task-rest"
        fd = np.concatenate([[np.nan], rng.gamma(2.0, motion / 2, size=len(part) - 1)])
        write(Path(f"{stem}_motion.tsv"), framewise_displacement=fd)
        write(Path(f"{stem}_outliers.tsv"), framewise_displacement=(fd > 0.5).astype(int))
        kept = dict(zip(labels, part[~(fd > 0.5)].T))
        write(Path(f"{stem}_{SPACE}_atlas-Simulated_stat-mean_timeseries.tsv"), **kept)
        coverage = {"Node": labels, "coverage": np.linspace(0.9, 1.0, ROIS)}
        write(Path(f"{stem}_{SPACE}_atlas-Simulated_stat-coverage_bold.tsv"), **coverage)


def run(line):
    """Do what typing the line in a shell does."""
    print(f"$ {line}")
    with chdir(place), redirect_stderr(sys.stdout):
        assert main(shlex.split(line)[1:]) == 0


# %%
# Import
# ------
# Read what it says: every line is a guess that an option changes. ``--runs sessions`` gives each session a row, which a
# label that changes between sessions needs; without it the sessions of a person are averaged. With several atlases,
# ``--atlas`` names one or more. XCP-D censors the series in its ``linc`` mode only; in its ``abcd`` and ``hbcd`` modes
# take its matrices (``--content matrix``).
run("bnt import bids/derivatives/xcp_d cohort --runs sessions")

# %%
# Inspect, and leave out
# ----------------------
# Choose thresholds before you see a score, and state them.
run("bnt info cohort --label group")

# %%
run("bnt info cohort --label hamd")

# %%
run('bnt select cohort quiet --where "mean_fd < 0.25 and n_retained >= 80"')

# %%
# Compare
# -------
# Siblings and the sessions of a person are never in two sets of a split. A person's predictions are averaged over
# sessions, so that sizes, intervals and tests are of people. To predict the score in place of the group, use
# ``--label hamd``.
run("bnt compare quiet --label group --positive MDD --models logistic ridge svm --splits 5 --jobs 1 --out study")

# %%
# Report
# ------
# One self-contained page, which opens from disk; the picture at the top is its beginning.
run("bnt report study")

# %%
# Its curves are drawn from the predictions that every run keeps:
pooled = {}
for model in ("logistic", "ridge", "svm"):
    tables = [pd.read_csv(file) for file in (place / "study" / "runs").glob(f"{model}--*/predictions.csv")]
    table = pd.concat(tables).query("part == 'test'")
    pooled[model] = (table["label"] == "MDD", table["p_MDD"])
roc_curves(pooled)
