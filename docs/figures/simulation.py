"""Compare simulated cohorts with ABIDE: writes simulation.png and simulation.csv beside this file.

    python docs/figures/simulation.py ABIDE_COHORT

ABIDE_COHORT is made by `bnt fetch abide`. Simulated: 1,009 subjects, 200 ROIs, 19 sites, seeds 100 to 104, all else
at its default. The strengths of the model and the default effect were chosen by hand against these very quantities
of ABIDE, on seeds 0 to 4: the agreement of the other seeds shows that the choice holds, not that the model is right.
The SVM is linear, C = 1, on Fisher z, five folds twice, stratified by site and diagnosis; C = 0.001 is beside it,
because with 19,900 edges C = 1 separates the training subjects and ABIDE gains from a softer margin.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

import bnt
from bnt.cohort import Cohort, square
from bnt.cohort._triangle import endpoints

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).resolve().parent
SEEDS = range(100, 105)  # the strengths and the default effect were chosen on seeds 0 to 4
COLOURS = {"ABIDE": "#0072B2", "simulated": "#D55E00"}  # apart for colour-blind eyes


def site_share(z: np.ndarray, sites: np.ndarray) -> np.ndarray:
    """Share of each edge's variance that lies between sites, corrected for chance (omega squared)."""
    names, counts = np.unique(sites, return_counts=True)
    total = ((z - z.mean(0)) ** 2).sum(0)
    between = sum(n * (z[sites == s].mean(0) - z.mean(0)) ** 2 for s, n in zip(names, counts))
    within = (total - between) / (len(z) - len(names))
    return (between - (len(names) - 1) * within) / (total + within)


def svm_aurocs(z: np.ndarray, labels: np.ndarray, sites: np.ndarray, c: float = 1.0) -> np.ndarray:
    kernel = z @ z.T
    strata = np.array([f"{s}/{y}" for s, y in zip(sites, labels)])
    scores = []
    for repeat in range(2):
        for train, test in StratifiedKFold(5, shuffle=True, random_state=repeat).split(kernel, strata):
            svm = SVC(kernel="precomputed", C=c).fit(kernel[np.ix_(train, train)], labels[train])
            scores.append(roc_auc_score(labels[test], svm.decision_function(kernel[np.ix_(test, train)])))
    return np.array(scores)


def describe(cohort: Cohort) -> dict:
    edges = np.asarray(cohort.connectomes, dtype=np.float64)
    z = np.arctanh(np.clip(edges, -0.999999, 0.999999))
    first, second = endpoints(cohort.n_rois)
    network = cohort.rois["network"].to_numpy()
    inside = network[first] == network[second]
    centred = z - z.mean(0)
    spectrum = np.linalg.eigvalsh(centred @ centred.T)[::-1]
    spectrum /= spectrum.sum()
    motion = cohort.participants["mean_fd"].to_numpy(float)
    known = np.isfinite(motion)
    shares, aurocs = site_share(z, cohort.sites), svm_aurocs(z, cohort.labels("diagnosis"), cohort.sites)
    numbers = {
        "mean correlation": edges.mean(),
        "within networks": edges[:, inside].mean(),
        "between networks": edges[:, ~inside].mean(),
        "SD over edges of the mean connectome": edges.mean(0).std(),
        "SD over subjects of an edge (mean)": edges.std(0).mean(),
        "SD over subjects of the mean correlation": edges.mean(1).std(),
        "site share of variance (mean over edges)": shares.mean(),
        "variance of the first component": spectrum[0],
        "variance of the first 10": spectrum[:10].sum(),
        "variance of the first 100": spectrum[:100].sum(),
        "r of log motion with the mean correlation": np.corrcoef(np.log(motion[known] + 0.01), edges[known].mean(1))[
            0, 1
        ],
        "linear SVM AUROC": aurocs.mean(),
        "SD of AUROC over folds": aurocs.std(),
        "linear SVM AUROC, C = 0.001": svm_aurocs(z, cohort.labels("diagnosis"), cohort.sites, 0.001).mean(),
    }
    order = np.argsort(network, kind="stable")
    mean = square(edges.mean(0))[np.ix_(order, order)]
    drawn = {
        "edge of the mean connectome": edges.mean(0),
        "mean correlation of a subject": edges.mean(1),
        "SD of an edge over subjects": edges.std(0),
        "site share of an edge's variance": shares,
    }
    return {
        "numbers": numbers,
        "drawn": drawn,
        "mean": mean,
        "aurocs": aurocs,
        "inside": inside,
        "edges": edges.mean(0),
    }


def main(folder: str) -> None:
    real = describe(bnt.load_cohort(folder))
    made = [describe(bnt.simulate_cohort(1009, 200, 19, seed=seed)) for seed in SEEDS]
    table = pd.DataFrame(
        {"ABIDE": real["numbers"], **{f"simulated, seed {s}": m["numbers"] for s, m in zip(SEEDS, made)}}
    )
    simulated = table.filter(like="simulated")
    table.insert(1, "simulated, mean", simulated.mean(axis=1))
    table.insert(2, "simulated, SD", simulated.std(axis=1))
    table.round(4).to_csv(HERE / "simulation.csv", index_label="quantity")
    print(table.round(3).iloc[:, :3].to_string())

    figure, axes = plt.subplots(2, 4, figsize=(15, 7), constrained_layout=True)
    for axis, one, title in ((axes[0, 0], real, "ABIDE"), (axes[1, 0], made[0], f"simulated, seed {SEEDS[0]}")):
        image = axis.imshow(one["mean"], vmin=-0.2, vmax=0.8, cmap="cividis")
        axis.set(title=f"{title}: mean connectome", xlabel="ROI, sorted by network", ylabel="ROI")
    figure.colorbar(image, ax=axes[:, 0], label="correlation", shrink=0.6, location="left")
    for axis, quantity in zip((axes[0, 1], axes[0, 2], axes[1, 1], axes[1, 2]), real["drawn"]):
        everything = np.concatenate([one["drawn"][quantity] for one in (real, made[0])])
        bins = np.linspace(*np.quantile(everything, [0.001, 0.999]), 45)
        for name, one in (("ABIDE", real), ("simulated", made[0])):
            values = one["drawn"][quantity]
            axis.hist(values, bins, density=True, histtype="stepfilled", alpha=0.35, color=COLOURS[name], label=name)
            axis.hist(values, bins, density=True, histtype="step", color=COLOURS[name], linewidth=1.5)
            axis.axvline(values.mean(), color=COLOURS[name], linestyle="--", linewidth=1)
        axis.set(xlabel=quantity, yticks=[], ylabel="density")
    axes[0, 1].legend(frameon=False, title="dashed: mean")
    axis = axes[0, 3]
    for place, (name, one) in enumerate((("ABIDE", real), ("simulated", made[0]))):
        parts = axis.boxplot(
            [one["edges"][one["inside"]], one["edges"][~one["inside"]]],
            positions=[place * 3, place * 3 + 1],
            widths=0.7,
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
        )
        for box in parts["boxes"]:
            box.set(facecolor=COLOURS[name], alpha=0.6)
    axis.set_xticks([0, 1, 3, 4], ["within", "between", "within", "between"])
    axis.set(ylabel="mean correlation of an edge", title="blue: ABIDE, orange: simulated")
    axis = axes[1, 3]
    rng = np.random.default_rng(0)
    for place, one in enumerate([real, *made]):
        colour = COLOURS["ABIDE" if place == 0 else "simulated"]
        axis.scatter(place + rng.uniform(-0.15, 0.15, 10), one["aurocs"], s=18, color=colour, alpha=0.6, linewidths=0)
        axis.plot([place - 0.3, place + 0.3], [one["aurocs"].mean()] * 2, color=colour, linewidth=2)
    axis.set_xticks(range(6), ["ABIDE", *(f"seed {s}" for s in SEEDS)], rotation=30)
    axis.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axis.set(ylabel="AUROC of a fold", title="linear SVM, C = 1, Fisher z", ylim=(0.48, 0.9))
    figure.savefig(HERE / "simulation.png", dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
