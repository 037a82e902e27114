"""The folder of a study: its description, which is extended when a study is resumed, and tables of its finished runs.

There is one row per run, one per model, and one per comparison.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort._files import read_json, readable
from bnt.cohort._store import canonical_kind
from bnt.errors import BadInput
from bnt.splits._protocols import canonical
from bnt.splits._split import SplitName
from bnt.studies._job import Variant
from bnt.studies._statistics import delong, holm, paired_permutation_test, paired_test, summarise
from bnt.training._config import CHANGED
from bnt.training._trained import check_finished, of_people, read_predictions

FIXED = ("label", "task", "positive", "protocol")  # what a study is about
SHAPE = ("kind", "n_subjects", "n_rois")
RATES = ("accuracy", "sensitivity", "specificity", "balanced_accuracy")
METRICS = ("auroc", "auroc_within_site", *RATES, "brier", "calibration_error")
SCORES = ("r", "mse", "mae", "medae", "r2", "spearman")
RECIPE = ("epochs", "patience", "select", "batch_size", "lr")  # what a table says of how a network was trained
LONGEST_NAME = 120


def read_study(folder: str | Path) -> dict[str, Any]:
    """Read a study's description."""
    file = Path(folder) / "study.json"
    if not file.is_file():
        raise BadInput(f"{folder} has no study.json, so it is not a study: give the folder that bnt compare made.")
    advice = "remove it and repeat the command that made the study; its runs are kept"
    found = read_json(file, advice)
    with readable(file, advice):
        for variant in found["variants"]:
            variant["name"].casefold(), variant["model"].casefold()
        list(found["splits"]), list(found["seeds"])
        return found | ({"kind": canonical_kind(found["kind"])} if "kind" in found else {})


def read_old(folder: Path) -> dict[str, Any] | None:
    """Return the description that a study's folder has; None where it has none yet."""
    return read_study(folder) if (folder / "study.json").is_file() else None


def folder_name(variant: str, split: str, seed: int) -> str:
    """Return a run's folder name: readable, and safe on any file system."""
    words = "--".join([variant, SplitName.parse(split).short, f"seed{seed}"])
    name = re.sub(r"[^A-Za-z0-9._=+-]+", "_", words)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 11]}--{sha256(words.encode()).hexdigest()[:9]}"


def check_same(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse to resume a study of another cohort, label, task or protocol: the cohort first, as it decides most."""
    label = "label" in old and old["label"] != new["label"]
    if "data_sha256" in old and old["data_sha256"] not in (new["data_sha256"], new.get("data_sha256_of_0_2")):
        if Path(old["cohort"]).resolve() != Path(new["cohort"]).resolve():
            also = f" (and with label {old['label']!r}, not {new['label']!r})" if label else ""
            raise BadInput(
                f"{folder} is a study made from cohort {old['cohort']}, not {new['cohort']}{also}: choose another "
                "folder.",
                "out",
            )
        if not label:
            raise BadInput(f"{folder} is a study of cohort {old['cohort']}, {CHANGED}: choose another folder.", "out")
    for key in FIXED:
        if key in old and _canonical(key, old[key]) != _canonical(key, new[key]):
            raise BadInput(
                f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: give the same to resume it, or "
                "choose another folder.",
                key,
            )
    for key in SHAPE:
        if key in old and old[key] != new[key]:
            raise BadInput(
                f"{folder} is a study with {key} = {old[key]!r}, not {new[key]!r}: choose another folder.", "out"
            )


def _canonical(key: str, value: Any) -> Any:
    return canonical(value) if key == "protocol" else value


def merged(folder: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a study with the variants, splits and seeds that its folder had before.

    Parameters
    ----------
    folder : path
        The study's folder; where it has no ``study.json`` the new description is returned as it is.
    new : dict
        From :meth:`bnt.studies._study.Study.description`.
    """
    new, old = json.loads(json.dumps(new)), read_old(folder)
    with readable(folder / "study.json", "remove it and repeat the command; its runs are kept"):
        if old is not None:
            check_same(folder, old, new)
        new.pop("data_sha256_of_0_2", None)  # serves the comparison only
        if old is None:
            return new
        return new | _variants(folder, old, new) | _splits(folder, old, new) | _seeds(old, new) | _commands(old, new)


def _variants(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = {variant["name"]: variant for variant in old["variants"]}
    for variant in new["variants"]:
        before = found.setdefault(variant["name"], variant)
        if Variant.from_dict(before) != Variant.from_dict(variant):
            raise BadInput(
                f"{folder} has a variant {variant['name']!r} with other options or another recipe: choose another "
                "folder, or another name.",
                "out",
            )
    return {"variants": list(found.values())}


def _splits(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    digests = old.get("split_sha256") or [""] * len(old["splits"])
    found = {name: (size, digest) for name, size, digest in zip(old["splits"], old["split_sizes"], digests)}
    for name, size, digest in zip(new["splits"], new["split_sizes"], new["split_sha256"]):
        if found.get(name, ("", ""))[1] not in ("", digest):
            raise BadInput(f"{folder} has a split {name!r} of other subjects: choose another folder.", "out")
        found[name] = (size, digest)
    short: dict[str, str] = {}
    for name in found:
        other = short.setdefault(SplitName.parse(name).short, name)
        if other != name:
            raise BadInput(
                f"{folder} has a split {other!r}, which {name!r} would be confused with: choose another folder.", "out"
            )
    return {
        "splits": list(found),
        "split_sizes": [size for size, _ in found.values()],
        "split_sha256": [digest for _, digest in found.values()],
    }


def _seeds(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"seeds": list(dict.fromkeys([*old["seeds"], *new["seeds"]]))}


def _commands(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"commands": list(dict.fromkeys([*old.get("commands", []), *new["commands"]]))}


def read_report(run: Path) -> dict[str, Any]:
    """Read the report of a finished run, whose files are checked first."""
    check_finished(run)
    return read_json(run / "report.json", "repeat the command, which makes the run anew")


def run_table(folder: str | Path) -> pd.DataFrame:
    """Return one row per finished run of a study, in the order of variants, splits and seeds.

    Examples
    --------
    >>> from bnt.studies import run_table
    >>> runs = run_table("study")  # a folder made by bnt compare
    >>> runs["variant"].unique().tolist()
    ['logistic', 'ridge']
    """
    folder, study = Path(folder), read_study(folder)
    with readable(folder, "repeat the bnt compare command"):
        return pd.DataFrame(_run_rows(folder, study))


def adjusted_columns(report: dict[str, Any]) -> dict[str, Any]:
    """Return what adjustments did in a run, as columns of the table of runs; none where there were none."""
    found: dict[str, Any] = {"threshold": report["threshold"]} if "threshold" in report else {}
    told = report.get("site_accuracy")
    if told:
        found |= {"site_accuracy_before": told["before"]["accuracy"], "site_accuracy_after": told["after"]["accuracy"]}
        found |= {"site_chance": told["before"]["chance"], "n_told_sites": told["before"]["n_sites"]}
    if report.get("never_predicted"):
        found["never_predicted"] = ", ".join(report["never_predicted"])
    return found


def _run_rows(folder: Path, study: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for variant in study["variants"]:
        for split in study["splits"]:
            for seed in study["seeds"]:
                run = folder / "runs" / folder_name(variant["name"], split, seed)
                if not (run / "DONE").is_file():
                    continue
                report = read_report(run)
                if report["split"] != split:
                    continue
                test = {k: v for k, v in report["test"].items() if k in METRICS + SCORES}
                if report["positive_class"] is not None:
                    test["positive_class"] = f"{report['label']} = {report['positive_class']}"
                yield {
                    "variant": variant["name"],
                    "model": variant["model"],
                    "split": split,
                    "seed": seed,
                    **test,
                    **adjusted_columns(report),
                    "chosen_epoch": max(report["epochs"], default=0),
                    **dict(zip(("n_train", "n_val", "n_test"), report["n"].values())),  # people, not scans
                    "n_parameters": report["n_parameters"],
                    "recipe": variant["recipe_name"],
                    **{name: variant["recipe"][name] for name in RECIPE},
                    "seconds": report["seconds"],
                    # What a run costs alone: the order of runs does not decide which model looks cheap.
                    "cpu_seconds": round(report["cpu_seconds"] + report.get("cpu_seconds_shared", 0.0), 2),
                    "cpu_seconds_shared": report.get("cpu_seconds_shared", 0.0),
                    "peak_memory_mb": report["peak_memory_mb"],
                    "run": run.name,
                    "versions": " ".join(f"{name} {v}" for name, v in report["versions"].items()),
                    "command": "; ".join(study.get("commands", [])),
                }


def overlap(runs: pd.DataFrame) -> float:
    """Return n_test / n_train of the splits, the correction for their overlap.

    The authors' splitter draws its test sets from the people beside one training set that never changes: there it is
    n_test over the rest of those, n_validation.
    """
    released = runs["split"].str.startswith("released:")
    rest = runs["n_train"].where(~released, runs["n_val"]) if released.any() else runs["n_train"]
    return float((runs["n_test"] / rest).mean())


def score_name(runs: pd.DataFrame) -> str:
    """Return the headline metric of a study: AUROC, or r for a score."""
    return "auroc" if "auroc" in runs else "r"


def per_split(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a table of a metric, splits x variants, averaged over seeds."""
    return runs.pivot_table(index="split", columns="variant", values=metric, aggfunc="mean", sort=False)


def limits(metric: str, runs: pd.DataFrame) -> tuple[float, float]:
    """Return the smallest and largest value that a metric can have: the Brier score of three classes runs to 2."""
    if metric in METRICS:
        return 0.0, 2.0 if metric == "brier" and "sensitivity" not in runs else 1.0
    return {"r": (-1.0, 1.0), "spearman": (-1.0, 1.0), "r2": (-np.inf, 1.0)}.get(metric, (0.0, np.inf))


def summary_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per variant: mean, SD and corrected 95 % interval of every metric, and its cost.

    ``<metric>_n`` is the number of splits with this metric; it is smaller than ``n_splits`` if the metric is undefined
    on some splits.

    Examples
    --------
    >>> from bnt.studies import run_table, summary_table
    >>> summary_table(run_table("study"))["n_splits"].tolist()
    [2, 2]
    """
    rows = []
    ratio = overlap(runs)
    names = [m for m in METRICS + SCORES if m in runs]
    for variant, group in runs.groupby("variant", sort=False):
        row: dict[str, Any] = {"variant": variant, "n_splits": group["split"].nunique(), "n_runs": len(group)}
        for metric in names:
            found = summarise(group.groupby("split", sort=False)[metric].mean().tolist(), ratio)
            low, high = found.low, found.high
            low, high = np.clip([low, high], *limits(metric, runs))
            row |= {metric: found.mean, f"{metric}_sd": found.sd, f"{metric}_low": low, f"{metric}_high": high}
            row[f"{metric}_n"] = found.n
        row |= {
            "n_parameters": int(group["n_parameters"].median()),
            "cpu_seconds": float(group["cpu_seconds"].mean()),
            "peak_memory_mb": float(group["peak_memory_mb"].max()),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def shared_runs(runs: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return the runs on splits and seeds that both variants have: an average over more runs is a better predictor."""
    keys = pd.MultiIndex.from_frame(runs[["split", "seed"]])
    both = keys[runs["variant"] == one].intersection(keys[runs["variant"] == other])
    return runs[keys.isin(both)]


def pooled_predictions(folder: str | Path, runs: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Return one row per person: test predictions averaged over scans, and over splits and seeds that tested them."""
    parts = []
    for name in runs.loc[runs["variant"] == variant, "run"]:
        table = read_predictions(Path(folder) / "runs" / name)
        parts.append(of_people(table[table["part"] == "test"]))
    table = pd.concat(parts)
    columns = [c for c in table.columns if c.startswith("p_") or c == "predicted"]
    grouped = table.groupby("participant_id")
    return grouped[columns].mean().join(grouped[["label", "site"]].first()).reset_index()


def positives(pooled: pd.DataFrame) -> tuple[str, np.ndarray] | None:
    """Return the column of the positive class and who belongs to it; None where the task is not binary.

    A label read as 1.0 and a column named ``p_1`` mean the same class.
    """
    names = [c for c in pooled.columns if c.startswith("p_")]
    if len(names) != 2:
        return None
    label = pooled["label"]
    if label.dtype.kind == "f":
        label = label.astype(np.int64)
    positive = (label.astype(str) == names[1].removeprefix("p_")).to_numpy()
    return (names[1], positive) if 0 < positive.sum() < len(positive) else None


def _on_subjects(mine: pd.DataFrame, theirs: pd.DataFrame, n_permutations: int) -> dict[str, Any]:
    """Compare two models on the subjects that both have tested, for binary tasks."""
    shared = theirs.merge(mine, on="participant_id", suffixes=("", "_ref"))
    found = positives(shared[list(theirs.columns)])
    if found is None:
        return {}
    column, positive = found
    a, b = shared[column].to_numpy(), shared[f"{column}_ref"].to_numpy()
    test = delong(positive, a, b)
    row: dict[str, Any] = {
        "delong_difference": test.difference,
        "delong_z": test.z,
        "p_delong": test.p,
        "n_subjects": len(shared),
    }
    if n_permutations:
        row["p_permutation"] = paired_permutation_test(positive, a, b, n_permutations)
    return row


def comparison_table(
    folder: str | Path | None, runs: pd.DataFrame, reference: str, n_permutations: int = 0
) -> pd.DataFrame:
    """Compare every variant with a reference over shared splits.

    One row per variant: the paired difference with its corrected 95 % interval and p (Nadeau-Bengio), the plain
    t-test's p as the paper used it, DeLong's test on the subjects' averaged predictions for binary tasks and, where
    asked for, a permutation test of the same difference; every p also after Holm's correction. Without a folder there
    are no predictions, and nothing is tested on subjects.

    Examples
    --------
    >>> from bnt.studies import comparison_table, run_table
    >>> comparison_table("study", run_table("study"), reference="logistic")["variant"].tolist()
    ['ridge']
    """
    metric = score_name(runs)
    scores = per_split(runs, metric)
    ratio = overlap(runs)
    rows = []
    for variant in runs["variant"].unique():
        if variant == reference:
            continue
        pair = scores.reindex(columns=[variant, reference]).dropna()
        corrected = paired_test(pair[variant].tolist(), pair[reference].tolist(), ratio)
        plain = paired_test(pair[variant].tolist(), pair[reference].tolist())
        row: dict[str, Any] = {
            "variant": variant,
            "reference": reference,
            "metric": metric,
            "n_splits": corrected.n,
            "difference": corrected.difference,
            "low": corrected.low,
            "high": corrected.high,
            "t_corrected": corrected.t,
            "p_corrected": corrected.p,
            "p_plain": plain.p,
        }
        if len(pair) and folder is not None:
            shared = shared_runs(runs, variant, reference)
            mine, theirs = (pooled_predictions(folder, shared, name) for name in (reference, variant))
            row |= _on_subjects(mine, theirs, n_permutations)
        rows.append(row)
    table = pd.DataFrame(rows)
    for column in ("p_corrected", "p_plain", "p_delong", "p_permutation"):
        if column in table:
            table[f"{column}_holm"] = holm(table[column].tolist())
    return table
