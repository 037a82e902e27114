"""Figures 3a, 3b and 4 and the difference score of appendix H: attention, centres of OCRead, assignments to them.

Figure 3a compares numbers of clusters and kinds of centres, the simplex beside the paper's three. Figure 4 shows the
soft assignments of ROIs to K = 4 clusters, and the difference score measures how much they differ between the classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt._words import counted, p_words
from bnt.cohort._triangle import UNASSIGNED, Networks
from bnt.errors import BadInput
from bnt.explain._attention import class_means, difference_score, mean_attention, member_assignments
from bnt.explain._decisions import part_rows
from bnt.paper._grid import GridResult, circumstances, rows, run_grid, skipped
from bnt.paper._plan import DIFFERENCE, FIGURE4_CLUSTERS, Plan, show
from bnt.plotting._brain import attention_matrix
from bnt.plotting._style import beside_figure, canvas, lines, styled
from bnt.studies._results import overlap
from bnt.studies._statistics import paired_test, summarise
from bnt.training._trained import TrainedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- Figure 3a ---------------------------------------------------------------------------------------------------------


CENTRES = ("random", "learnable", "orthonormal", "simplex")
# All centres of unit length: the released first orthonormal centre is longer, which would favour its cluster.
UNIT = {"orthonormal": {"normalise_first": True}}
FIGURE3A_NOTES = """
All centres have unit length, the first orthonormal one too, which the released code leaves longer than the others.
The paper shows these values as a picture only: it says that orthonormal centres rise from K = 2 to 10, fall to 100, and
are better than the others at small K. Random unit vectors in 200 dimensions have cosines of about 0.07, so they are
nearly orthonormal already; the simplex is the set that maximises what Theorem 3.1 is about (`bnt theory`).
"""


def centres_name(centres: str, k: int) -> str:
    """Return a variant's name."""
    return f"{centres}-K{k}"


def figure3a(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Run K x centres and return table, Markdown and figure."""
    variants = [
        plan.variant(centres_name(c, k), plan.model, centres=c, n_clusters=k, **UNIT.get(c, {}))
        for k in plan.clusters
        for c in CENTRES
    ]
    result = run_grid(plan, variants, reference=centres_name("orthonormal", 10))
    table = pd.DataFrame(
        [
            {
                "centres": c,
                "n_clusters": k,
                "auroc": result.value(centres_name(c, k))[0],
                "auroc_sd": result.value(centres_name(c, k))[1],
                "n_splits": result.n_splits(centres_name(c, k)),
                "missing": result.missing.get(centres_name(c, k), ""),
            }
            for c in CENTRES
            for k in plan.clusters
        ]
    )
    return table, figure3a_text(plan, result), draw_figure3a(plan, result)


def figure3a_text(plan: Plan, result: GridResult) -> str:
    """Return AUROC by K and centres, those that were asked for."""
    centres = [c for c in CENTRES if any(plan.asks_for(centres_name(c, k), plan.model) for k in plan.clusters)]
    clusters = [k for k in plan.clusters if any(plan.asks_for(centres_name(c, k), plan.model) for c in CENTRES)]
    body = [[str(k)] + [result.shown(centres_name(c, k)) for c in centres] for k in clusters]
    return (
        f"# Figure 3a: cluster centres, AUROC (%) of `{plan.model}`\n\n"
        + rows(["K", *(f"{c} (ours)" if c == "simplex" else c for c in centres)], body)
        + circumstances(plan, result, printed=False)
        + FIGURE3A_NOTES
        + skipped(result)
    )


@styled
def draw_figure3a(plan: Plan, result: GridResult) -> Figure:
    """Draw AUROC against K, one line per kind of centres; what was not run takes no room."""
    figure, (axes,) = canvas(width=4.6, height=2.8)
    scores = np.array([[result.value(centres_name(c, k)) for k in plan.clusters] for c in CENTRES])  # (centres, K, 2)
    known = np.isfinite(scores[:, :, 0])
    there = known.any(axis=0)
    groups = {c: (scores[i, there, 0], scores[i, there, 1]) for i, c in enumerate(CENTRES) if known[i].any()}
    lines(axes, [k for k, one in zip(plan.clusters, there) if one], groups)
    axes.set(xlabel="number of clusters K", ylabel="test AUROC (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


# -- the runs of Figure 4 and of the difference score: random and orthonormal centres ---------------------------------

STARTS = ("random", "orthonormal")
N_PERMUTATIONS = 200


def run_both(plan: Plan) -> GridResult:
    """Train with both starts; as parts of ``all`` the figure and the score share their runs."""
    variants = [
        # All centres of unit length: the released first centre would favour its cluster with one start only.
        plan.variant(start, plan.model, centres=start, n_clusters=FIGURE4_CLUSTERS, normalise_first=True)
        for start in STARTS
    ]
    folder = plan.out.parent / "figure4" if plan.together else plan.out
    return run_grid(plan, variants, reference="random", folder=folder)


def tested_assignments(plan: Plan, result: GridResult, run: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return who was tested in a run, as positions, and their assignments by each of its networks, (n, V, K)."""
    folder = result.folder / "runs" / run
    rows = part_rows(folder, plan.cohort, "test")
    return rows, member_assignments(TrainedRun(folder), plan.cohort, rows)


def mean_assignments(plan: Plan, result: GridResult) -> dict[str, np.ndarray]:
    """Return, for each start, the mean P of the test subjects of each class over splits, (2, V, K).

    Clusters have no order of their own, but the frozen centres of one seed are the same in every split: one
    seed and its first network are averaged.
    """
    y = plan.cohort.labels(plan.label)
    found = {}
    for start in STARTS:
        chosen = result.runs[(result.runs["variant"] == start) & (result.runs["seed"] == plan.seeds[0])]
        each = []
        for run in chosen["run"]:
            rows, members = tested_assignments(plan, result, run)
            each.append(class_means(members[0], y[rows]))
        if each:
            found[start] = np.mean(each, axis=0)
    return found


def difference_table(plan: Plan, result: GridResult) -> pd.DataFrame:
    """Return one row per split: the score of each start, and what it would be for classes permuted within sites."""
    y = plan.cohort.labels(plan.label)
    found: dict[str, dict[str, Any]] = {}
    for run in result.runs[result.runs["variant"].isin(STARTS)].itertuples():
        rows, members = tested_assignments(plan, result, str(run.run))
        scores = [difference_score(p, y[rows], plan.cohort.sites[rows], n_permutations=N_PERMUTATIONS) for p in members]
        row = found.setdefault(f"{run.split}/{run.seed}", {"split": run.split, "seed": run.seed})
        row[str(run.variant)] = float(np.mean([s.d for s in scores]))
        row[f"{run.variant}_chance"] = float(np.mean([s.null_mean for s in scores]))
    columns = ["split", "seed", *STARTS, *(f"{start}_chance" for start in STARTS)]
    return pd.DataFrame(list(found.values())).reindex(columns=columns)


# -- Figure 4 ----------------------------------------------------------------------------------------------------------

FIGURE4_NOTES = """
P is averaged over the test subjects of each class and over splits; all centres have unit length, so that no cluster is
favoured. d is the difference score of the averaged P shown here; `difference` has it for every split. "Grouped" is the
mean over ROIs of the largest P; 0.25 means that ROIs form no groups.
"""


def figure4(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train with both starts, average P, and return table, Markdown and figure."""
    result = run_both(plan)
    mean = mean_assignments(plan, result)
    classes = np.unique(plan.cohort.labels(plan.label)).tolist()
    table = pd.DataFrame(
        [
            {"centres": start, "class": name, "roi": roi + 1, "cluster": k + 1, "p": float(p[c, roi, k])}
            for start, p in mean.items()
            for c, name in enumerate(classes)
            for roi in range(p.shape[1])
            for k in range(p.shape[2])
        ]
    )
    printed = DIFFERENCE[plan.dataset]
    body = [
        [start, f"{printed[start][0]:.3f}", f"{np.abs(p[0] - p[1]).mean():.3f}", f"{p.max(axis=2).mean():.3f}"]
        for start, p in mean.items()
    ]
    text = (
        f"# Figure 4: assignments to 4 clusters by `{plan.model}`\n\n"
        + rows(["centres", "d paper", "d ours", "grouped (ours)"], body)
        + circumstances(plan, result)
        + FIGURE4_NOTES
        + skipped(result)
    )
    return table, text, draw_figure4(mean, [plan.class_name(name) for name in classes])


@styled
def draw_figure4(mean: dict[str, np.ndarray], classes: list[str]) -> Figure:
    """Draw clusters x ROIs for each start and class, ROIs in the same order throughout a start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 + 2.8 * len(mean), 3.6), layout="constrained")
    panels = figure.subplots(2, len(mean), squeeze=False)
    top = max(float(p.max()) for p in mean.values())
    image = None
    for column, (start, p) in enumerate(mean.items()):
        pooled = p.mean(axis=0)  # (V, K)
        order = np.lexsort((-pooled.max(axis=1), pooled.argmax(axis=1)))
        for row, name in enumerate(classes):
            axes = panels[row][column]
            image = axes.imshow(
                p[row][order].T, aspect="auto", cmap="viridis", vmin=0, vmax=top, interpolation="nearest"
            )
            axes.set_yticks(range(p.shape[2]), [str(k + 1) for k in range(p.shape[2])])
            axes.set_xticks([])
            axes.tick_params(length=0)
            if row == 0:
                axes.set_title(f"{start} centres", fontsize=8)
            if column == 0:
                axes.set_ylabel(f"{name}\ncluster")
        panels[1][column].set_xlabel("ROIs, in the order of their cluster")
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), label="P, mean over test subjects", shrink=0.8)
    return figure


# -- the difference score (appendix H) ---------------------------------------------------------------------------------

DIFFERENCE_NOTES = """
d is the mean over ROIs and clusters of |mean P of one class - mean P of the other| on the test set. Two groups of the
same kind differ by chance too: that level is d after the classes were permuted within sites, and the paper does not
give it. A larger d with a larger chance level is no better told apart.
"""


def difference(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Score both starts on every split and return table, Markdown and figure."""
    result = run_both(plan)
    table = difference_table(plan, result)
    printed = DIFFERENCE[plan.dataset]
    each = table.groupby("split", sort=False).mean(numeric_only=True)  # over seeds
    ours = {}
    for column in (*STARTS, *(f"{start}_chance" for start in STARTS)):
        found = summarise(each[column].tolist())
        ours[column] = (found.mean, found.sd)
    pairs = each[list(STARTS)].dropna()
    orthonormal, random = pairs["orthonormal"].tolist(), pairs["random"].tolist()
    corrected = paired_test(orthonormal, random, overlap(result.runs))
    plain = paired_test(orthonormal, random)
    verdict = ""
    if corrected.n:  # only one start may have been asked for, or have finished
        verdict = f"\nOrthonormal - random: {corrected.difference:+.4f} over {counted(corrected.n, 'split')}"
    if corrected.n > 1:
        verdict += (
            f", 95 % interval {corrected.low:+.4f} to {corrected.high:+.4f}, {p_words(corrected.p)} (Nadeau-Bengio); "
            f"the paper's plain t-test would give {p_words(plain.p)}"
        )
    text = (
        f"# Difference score of the assignments of `{plan.model}`, K = 4\n\n"
        + rows(
            ["centres", "paper", "ours", "ours by chance"],
            [[s, show(printed[s], 3), show(ours[s], 3), show(ours[f"{s}_chance"], 3)] for s in STARTS],
        )
        + (f"{verdict}.\n" if verdict else "")
        + circumstances(plan, result)
        + DIFFERENCE_NOTES
        + skipped(result)
    )
    figure = beside_figure(
        list(STARTS),
        np.array([ours[s] for s in STARTS]),
        np.array([printed[s] for s in STARTS]),
        "difference score d, mean and SD",
    )
    return table, text, figure


NOTES = """
Attention is that of the first layer in evaluation mode, averaged over heads, test subjects and splits; each row sums
to 1, so {uniform:.5f} is no preference. The paper shows this figure for ABCD only and prints no number; it had no
network labels for ABIDE.{more}
"""
RATIO = "The ratio is above 1 where a network's ROIs attend to their own network more than to the rest."
NO_LABELS = "The atlas of this cohort has none either (rois.tsv): ROIs are in its order, and no networks are compared."


def networks_of(plan: Plan) -> Networks:
    """Return each ROI's network; all are unassigned where the atlas has no labels."""
    found = Networks.of(plan.cohort)
    return found or Networks((UNASSIGNED,), np.zeros(plan.cohort.n_rois, dtype=np.int64))


def figure3b(plan: Plan) -> tuple[pd.DataFrame, str, Figure]:
    """Train, average attention over the test subjects of every split, and return table, Markdown and figure."""
    result = run_grid(plan, [plan.variant(plan.model, plan.model)])
    each = []
    for name in result.runs.loc[result.runs["variant"] == plan.model, "run"]:
        folder = result.folder / "runs" / name
        tested = part_rows(folder, plan.cohort, "test")
        each.append(mean_attention(TrainedRun(folder), plan.cohort, tested).matrix(layer=0))
    if not each:  # the folder has runs of another --model only
        raise BadInput(f"No run of {plan.model} in {result.folder} finished: {result.missing[plan.model]}.")
    attention = np.mean(each, axis=0)  # (V, V)
    networks = networks_of(plan)
    table = block_table(attention, networks)
    text = markdown(plan, attention, networks) + circumstances(plan, result, printed=False) + skipped(result)
    return table, text, attention_matrix(attention, None if networks.names == (UNASSIGNED,) else networks)


def block_table(attention: np.ndarray, networks: Networks) -> pd.DataFrame:
    """Return the mean attention from each network to each network; an ROI's attention to itself is left out."""
    means = networks.block_means(attention)
    return pd.DataFrame(
        [
            {"from": source, "to": target, "attention": means[i, j]}
            for i, source in enumerate(networks.names)
            for j, target in enumerate(networks.names)
        ]
    )


def own_and_other(attention: np.ndarray, networks: Networks) -> pd.DataFrame:
    """Return for each network the mean attention to its own ROIs (themselves left out), to others, and the ratio."""
    labels = networks.labels
    same = labels[:, None] == labels[None, :]
    away = ~np.eye(len(labels), dtype=bool)
    found = []
    for name in [*networks.names, "all"]:
        source = (labels == name)[:, None] | np.full((len(labels), 1), name == "all")
        own, other = attention[source & same & away], attention[source & ~same]
        a = float(own.mean()) if own.size else float("nan")
        b = float(other.mean()) if other.size else float("nan")
        n = int(source.sum())
        found.append({"network": name, "n_rois": n, "own": a, "other": b, "ratio": a / b if b else float("nan")})
    return pd.DataFrame(found)


def markdown(plan: Plan, attention: np.ndarray, networks: Networks) -> str:
    """Return attention within and between networks; where ROIs have no networks, only what the figure shows."""
    title = f"# Figure 3b: attention of `{plan.model}` by functional network\n"
    uniform = 1 / len(attention)
    if networks.names == (UNASSIGNED,):
        return title + NOTES.format(uniform=uniform, more="\n" + NO_LABELS)
    body = [
        [one["network"], str(one["n_rois"]), f"{one['own']:.5f}", f"{one['other']:.5f}", f"{one['ratio']:.3f}"]
        for one in own_and_other(attention, networks).to_dict("records")
    ]
    return (
        title
        + "\n"
        + rows(["from network", "ROIs", "to its own", "to others", "ratio"], body)
        + NOTES.format(uniform=uniform, more=" " + RATIO)
    )
