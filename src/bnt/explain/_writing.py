"""The output of ``bnt explain``: tables, figures, brain images, and ``explain.json`` with the main numbers.

An ROI's strength is the sum of the sizes of its edges' scores; its balance is their sum, positive where stronger
connections of the ROI speak for the target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort, square
from bnt.cohort._files import jsonable
from bnt.cohort._triangle import UNASSIGNED, Networks
from bnt.errors import BadInput
from bnt.explain._attention import (
    agreement,
    attention_by_network,
    class_means,
    cluster_table,
    clustering_stability,
    difference_score,
    hard_clusters,
    mean_attention,
    member_assignments,
    network_enrichment,
)
from bnt.explain._decisions import (
    baseline_edges,
    is_network,
    keeps_no_subjects,
    mean_edges,
    part_rows,
    training_part,
    true_labels,
)
from bnt.explain._edges import EdgeMap, NotDifferentiable, edge_map
from bnt.explain._stability import map_stability, planted_pairs, precision, sanity_check
from bnt.models._registry import short_name
from bnt.plotting import _brain as figures
from bnt.plotting._style import save_figure
from bnt.sources._atlas import Atlas
from bnt.training._trained import TrainedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from nibabel import Nifti1Image

N_SEEDS = 10


def roi_values(score: np.ndarray) -> dict[str, np.ndarray]:
    """Return strength and balance of each ROI, (V,), from a map of edges, (E,)."""
    matrix = square(score, 0.0)
    return {"strength": np.abs(matrix).sum(axis=0), "balance": matrix.sum(axis=0)}


def painted(atlas: Atlas, values: np.ndarray) -> Nifti1Image:
    """Return a brain image of values of ROIs, (V,) or (V, n): of labels their value, of maps the weighted sum."""
    import nibabel as nib

    image = atlas.image()
    data = np.asarray(image.dataobj)
    values = np.asarray(values, dtype=np.float32)
    if atlas.form == "maps":
        return nib.Nifti1Image(np.asarray(data, dtype=np.float32) @ values, image.affine)
    table = np.zeros((int(data.max()) + 1, *values.shape[1:]), dtype=np.float32)
    table[atlas.rois["roi"].to_numpy(dtype=np.int64)] = values
    return nib.Nifti1Image(table[np.maximum(data, 0).astype(np.int64)], image.affine)  # not the labels' whole numbers


def write_brain_maps(score: np.ndarray, atlas: Atlas, folder: Path) -> dict[str, Any]:
    """Write the maps of an edge map, (E,), into a folder; return which files hold what."""
    values = roi_values(score)
    if atlas.form == "cifti":
        _dense_maps(values, atlas, folder / "rois.dscalar.nii")
        _matrix(score, _dense_parcels(atlas), folder / "edges.pconn.nii")
        return {"files": ["rois.dscalar.nii", "edges.pconn.nii"], "atlas": str(atlas.file)}
    files = [f"roi_{name}.nii.gz" for name in values]
    for one, file in zip(values.values(), files):
        painted(atlas, one).to_filename(folder / file)
    seeds = np.argsort(-values["strength"], kind="stable")[:N_SEEDS]
    painted(atlas, square(score, 0.0)[:, seeds]).to_filename(folder / "seed_maps.nii.gz")
    table = atlas.rois.iloc[seeds][["roi", "label", "network"]].assign(strength=values["strength"][seeds])
    table.insert(0, "volume", np.arange(len(seeds)))
    table.to_csv(folder / "seed_maps.csv", index=False, float_format="%.8g")
    files += ["seed_maps.nii.gz", "seed_maps.csv"]
    if atlas.form == "labels":
        _matrix(score, _volume_parcels(atlas), folder / "edges.pconn.nii")
        files.append("edges.pconn.nii")
    return {"files": files, "atlas": str(atlas.file)}


def strongest_rois(score: np.ndarray, rois: pd.DataFrame) -> pd.DataFrame:
    """Return the ROI table with strength and balance, the strongest first."""
    table = rois.assign(**roi_values(score))
    return table.sort_values("strength", ascending=False, kind="stable").reset_index(drop=True)


def _names(atlas: Atlas) -> list[str]:
    return [label or f"ROI {number}" for number, label in zip(atlas.rois["roi"], atlas.rois["label"])]


def _volume_parcels(atlas: Atlas) -> Any:
    """Return the label image's ROIs as CIFTI parcels of voxels."""
    from nibabel.cifti2 import BrainModelAxis, ParcelsAxis

    image = atlas.image()
    data = np.asarray(image.dataobj)
    models = [BrainModelAxis.from_mask(data == n, name="other", affine=image.affine) for n in atlas.rois["roi"]]
    return ParcelsAxis.from_brain_models(list(zip(_names(atlas), models)))


def _dense_labels(atlas: Atlas) -> tuple[Any, np.ndarray]:
    import nibabel as nib

    labels: Any = nib.load(atlas.file)
    return labels.header.get_axis(1), np.asarray(labels.dataobj)[0].astype(np.int64)


def _dense_parcels(atlas: Atlas) -> Any:
    """Return a CIFTI label file's ROIs as parcels."""
    from nibabel.cifti2 import ParcelsAxis

    axis, keys = _dense_labels(atlas)
    return ParcelsAxis.from_brain_models([(n, axis[keys == k]) for n, k in zip(_names(atlas), atlas.rois["roi"])])


def _matrix(score: np.ndarray, parcels: Any, file: Path) -> None:
    """Write edges as a CIFTI matrix of parcels by parcels."""
    import nibabel as nib

    header = nib.Cifti2Header.from_axes((parcels, parcels))
    nib.Cifti2Image(square(score, 0.0).astype(np.float32), header).to_filename(file)


def _dense_maps(values: dict[str, np.ndarray], atlas: Atlas, file: Path) -> None:
    """Write values of ROIs as CIFTI maps of grayordinates."""
    import nibabel as nib

    axis, keys = _dense_labels(atlas)
    out = np.zeros((len(values), len(keys)), dtype=np.float32)
    for i, number in enumerate(atlas.rois["roi"]):
        out[:, keys == number] = np.array([one[i] for one in values.values()])[:, None]
    header = nib.Cifti2Header.from_axes((nib.cifti2.ScalarAxis(list(values)), axis))
    nib.Cifti2Image(out, header).to_filename(file)


Facts = dict[str, Any]
UNITS = {
    "pattern": "pattern: edge per SD of decision",
    "coefficients": "weight × SD of the edge",
    "integrated-gradients": "change of margin per SD of the edge",
    "gradient": "change of margin per SD of the edge",
}


class Explanation:
    """One run explained on some subjects: each method writes its tables and figures and returns the main numbers.

    Parameters
    ----------
    rows : array of int
        Whose predictions are explained.
    folder : path
        An existing folder, for tables and figures.
    n_permutations, seed : int
        Of all permutation tests.
    atlas : Atlas, optional
        Writes brain maps of the edges.
    """

    def __init__(
        self,
        trained: TrainedRun,
        cohort: Cohort,
        rows: np.ndarray,
        folder: Path,
        n_permutations: int = 1000,
        seed: int = 0,
        atlas: Atlas | None = None,
    ) -> None:
        self.atlas = atlas
        self.trained, self.cohort, self.rows, self.folder = trained, cohort, np.asarray(rows), folder
        if n_permutations < 1:
            raise BadInput(f"n_permutations is {n_permutations}: give at least 1.", "n_permutations")
        self.n_permutations, self.seed = n_permutations, seed
        self.networks = Networks.of(cohort)
        self.planted = planted_pairs(cohort, trained.config.label)
        self.training = training_part(trained.folder, trained.config, cohort)
        task = trained.config.task
        codes = true_labels(trained.config, cohort, self.rows) if task.kind == "classification" else None
        self.codes = codes
        meaning = cohort.levels.get(trained.config.label, {})
        self.classes = [meaning.get(str(c), f"{trained.config.label} = {c}") for c in task.classes]

    def attention(self) -> Facts:
        """Write attention by network, its enrichment, and figures; return the headline."""
        groups = None if self.codes is None else [self.classes[c] for c in self.codes]
        found = mean_attention(self.trained, self.cohort, self.rows, groups)
        first = found.matrix(0)
        title = f"layer 1, mean of heads, {len(self.rows)} subjects"
        self.draw("attention", figures.attention_matrix(first, self.networks, title))
        facts: Facts = {"layers": len(found.layers), "heads": [layer.shape[1] for layer in found.layers]}
        np.save(self.folder / "attention.npy", np.stack([found.matrix(i) for i in range(len(found.layers))]))
        if self.networks is None:
            return facts | {"networks": "the ROI table names no networks: no enrichment test"}
        means = attention_by_network(found, self.networks)
        self.table("attention_networks.csv", means)
        blocks = self.networks.block_means(first) * len(first)
        label = "attention, times uniform"
        self.draw(
            "attention_networks", figures.network_matrix(blocks, self.networks.names, label, "from row to column")
        )
        keys, maps = found.maps()
        own = square(mean_edges(self.cohort, self.rows), 0.0)
        keys = pd.concat([pd.DataFrame([{"group": "all", "layer": 0, "head": "input"}]), keys], ignore_index=True)
        tests = network_enrichment(
            np.concatenate([own[None], maps]), self.networks, self.n_permutations, self.seed, keys
        )
        self.table("enrichment.csv", tests)
        shown = tests[tests["group"] == "all"]
        self.draw("enrichment", figures.enrichment_plot(shown))
        for name, layer, head in (("enrichment_layer_1", 1, "mean"), ("enrichment_input", 0, "input")):
            chosen = (shown["network"] == "all") & (shown["layer"] == layer) & (shown["head"] == head)
            facts[name] = shown.loc[chosen, ["ratio", "z", "p", "q"]].to_dict("records")[0]
        if self.planted is not None:
            label = self.trained.config.label
            facts["planted"] = {
                f"layer {i + 1}": precision(found.matrix(i), self.cohort, label).to_dict()
                for i in range(len(found.layers))
            }
        return facts

    def clusters(self, also: Sequence[TrainedRun]) -> Facts:
        """Write soft assignments by class with the difference score; compare clusters with networks and runs."""
        each = member_assignments(self.trained, self.cohort, self.rows)
        codes = np.zeros(len(self.rows), dtype=np.int64) if self.codes is None else self.codes
        present = np.unique(codes)
        names = ["all"] if self.codes is None else [self.classes[c] for c in present]
        tables, scores, fits = [], [], []
        for i, one in enumerate(each):
            means = class_means(one, codes)
            tables.append(cluster_table(means, names, self.cohort.rois, i))
            if len(present) > 1:
                sites = self.cohort.sites[self.rows]
                scores.append(
                    {"member": i, **asdict(difference_score(one, codes, sites, self.n_permutations, self.seed))}
                )
            if self.networks is not None:
                fits.append(agreement(hard_clusters(one), self.networks, self.n_permutations, self.seed))
            if i == 0:
                which = f"network 1 of {len(each)}, " if len(each) > 1 else ""
                title = f"{which}{len(self.rows)} subjects"
                self.draw("clusters", figures.assignment_maps(means, names, self.networks, title))
        self.table("clusters.csv", pd.concat(tables, ignore_index=True))
        facts: Facts = {"n_clusters": each[0].shape[2], "members": len(each)}
        if scores:
            self.table("difference.csv", pd.DataFrame(scores))
            facts["difference"] = scores
        if fits:
            facts["networks"] = fits
        partitions = [hard_clusters(one) for one in each]
        facts["stability_over_members"] = clustering_stability(partitions)
        if also:
            others = [hard_clusters(member_assignments(run, self.cohort, self.rows)[0]) for run in also]
            seeds = {run.config.seed for run in (self.trained, *also)}
            facts["stability_over_runs"] = {
                **clustering_stability([partitions[0], *others]),
                "same_centres": len(seeds) == 1,  # runs of one seed draw the same centres, which makes them agree more
            }
        return facts

    def edge_map_of(self, run: TrainedRun, method: str | None, target: str | None) -> EdgeMap:
        """Return the edge map of this or another run on the same subjects."""
        training = self.training if run is self.trained else training_part(run.folder, run.config, self.cohort)
        base = baseline_edges(run, training)
        return edge_map(run, self.cohort, self.rows, base, method, target, training)

    def edges(self, method: str | None, target: str | None, also: Sequence[TrainedRun]) -> Facts:
        """Write the edge map, its means by network pair and figures; compare it with other runs' maps."""
        try:
            found = self.edge_map_of(self.trained, method, target)
        except NotDifferentiable:
            if method is not None:
                raise
            found = self.edge_map_of(self.trained, "pattern", target)
        self.table("edges.csv", found.table(self.cohort.rois, self.networks))
        config = self.trained.config
        what = config.label if config.task.kind == "regression" else f"{config.label} = {found.target}"
        title = f"{found.method}, {what}"
        self.draw("edges", figures.edge_matrix(found.score, self.networks, UNITS[found.method], title))
        facts: Facts = {
            "method": found.method,
            "baseline": found.baseline,
            "target": what,
            "n_subjects_of_map": found.n,
        }
        if found.method == "integrated-gradients":
            facts["sum_of_shares"] = float(found.share.sum())  # 1, but for the error of the path's finite steps
        if self.networks is not None:
            table = found.by_network(self.networks)
            self.table("edges_by_network.csv", table)
            blocks = self.networks.block_means(square(found.score, 0.0))
            power = int(np.floor(np.log10(np.nanmax(np.abs(blocks)) or 1.0))) - 1  # numbers of two digits in the cells
            blocks, label = blocks / 10.0**power, figures.in_powers(UNITS[found.method], power)
            self.draw(
                "edges_by_network", figures.network_matrix(blocks, self.networks.names, label, title, signed=True)
            )
            named = table[(table["network_a"] != UNASSIGNED) & (table["network_b"] != UNASSIGNED)]
            facts["top_pairs"] = [f"{a} - {b}" for a, b in named[["network_a", "network_b"]].to_numpy()[:5]]
        places = figures.coordinates(self.cohort.rois)
        if places is not None:
            self.draw("connectome", figures.glass_brain(square(found.score, 0.0), places, self.networks))
        self.table("rois.csv", strongest_rois(found.score, self.cohort.rois))
        if self.atlas is not None:
            facts["brain_maps"] = write_brain_maps(found.score, self.atlas, self.folder)
            if self.atlas.form != "cifti":  # the surface of CIFTI files does not come with nilearn
                balance = painted(self.atlas, roi_values(found.score)["balance"])
                self.draw("surface", figures.surface_map(balance, "sum over the ROI's edges"))
        if also:
            maps = [found.score, *(self.edge_map_of(run, found.method, target).score for run in also)]
            facts["stability_over_runs"] = map_stability(np.stack(maps)).to_dict()
        if self.planted is not None:
            facts["planted"] = precision(found.score, self.cohort, config.label).to_dict()
        return facts

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table."""
        table.to_csv(self.folder / name, index=False, float_format="%.8g")

    def draw(self, name: str, figure: Figure) -> None:
        """Write a figure as PNG and PDF."""
        for kind in ("png", "pdf"):
            save_figure(figure, self.folder / f"{name}.{kind}")

    def summary(self, facts: Facts) -> None:
        """Write ``explain.json``."""
        (self.folder / "explain.json").write_text(json.dumps(jsonable(facts), indent=2) + "\n")

    def write(
        self, method: str | None = None, target: str | None = None, also: Sequence[TrainedRun] = (), n_sanity: int = 0
    ) -> Facts:
        """Write everything that the model has; return the main numbers.

        Parameters
        ----------
        method, target : str, optional
            See :func:`bnt.explain.edge_map`.
        also : sequence of TrainedRun
            Runs of the same kind, to measure the stability of clusters and edges.
        n_sanity : int
            Refits of :func:`bnt.explain.sanity_check`; 0 leaves it out.
        """
        facts: Facts = {"model": short_name(self.trained.config.model), "n_subjects": len(self.rows)}
        facts |= {"permutations": self.n_permutations, "seed": self.seed}
        if is_network(self.trained):
            for name, make in (("attention", self.attention), ("clusters", lambda: self.clusters(also))):
                try:
                    facts[name] = make()
                except BadInput as error:  # the model has none
                    facts[name] = {"not_available": str(error)}
        facts["edges"] = self.edges(method, target, also)
        if n_sanity:
            facts["sanity"] = self.sanity(n_sanity, method)
        return facts

    def sanity(self, n: int, method: str | None) -> Facts:
        """Compare maps of resampled true and shuffled labels."""
        if self.training is None:
            raise BadInput(f"The cohort lacks training subjects of {self.trained.folder}, which the check refits on.")
        cohort, train = self.training
        rows, val = (part_rows(self.trained.folder, cohort, part) for part in ("test", "validation"))
        return sanity_check(self.trained.config, cohort, train, val, rows, n, method, self.seed).to_dict()


def chosen_rows(trained: TrainedRun, cohort: Cohort, subjects: str) -> np.ndarray:
    """Return the subjects to explain: a set of the run's split, or everyone in the cohort."""
    if subjects == "all":
        return np.arange(len(cohort))
    if keeps_no_subjects(trained.folder):
        raise BadInput(
            f"{trained.folder} does not store its subjects: explain all subjects of the cohort instead.", "subjects"
        )
    rows = part_rows(trained.folder, cohort, subjects)
    if not len(rows):
        raise BadInput(
            f"{cohort.path or 'The cohort'} has no subject of the {subjects} set of {trained.folder}: "
            "explain all subjects instead.",
            "subjects",
        )
    return rows
