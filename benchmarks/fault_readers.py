"""How the campaign of ``reliability.py`` reads what it breaks: as the program does, file by file."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fault_targets import (
    SCANS,
    cut,
    legal,
    wrong_cells,
    wrong_images,
    wrong_probabilities,
    wrong_scans,
    wrong_splits,
)
from mutants import Target

import bnt
from bnt.cli._main import run_command
from bnt.errors import BadInput
from bnt.sources import read_cohort
from bnt.training._trained import TrainedRun, load_result, read_config, seal

RUN = ("config.toml", "splits.csv", "weights.safetensors", "predictions.csv", "report.json", "metrics.jsonl", "DONE")


def store() -> Any:
    """Open the cohort, its arrays read and compared with their digests."""
    from bnt.training._config import check_data

    cohort = bnt.load_cohort("cohort")
    check_data(cohort, read=True)
    series = b"".join(np.ascontiguousarray(one).tobytes() for one in cohort.timeseries or ())
    people = cohort.participants
    columns = [
        (c, people[c].fillna("n/a").tolist()) for c in ("participant_id", "site", "diagnosis", "age") if c in people
    ]
    rois = [("label", cohort.rois["label"].tolist()), ("network", cohort.rois["network"].tolist())]
    facts = [cohort.kind, cohort.diagonal, cohort.atlas, cohort.source, cohort.levels, cohort.findings]
    return columns, rois, cohort.edges(np.arange(len(cohort))).tobytes(), series, json.dumps(facts, default=str)


def wrong_store(original: Any) -> Callable[[Any, str, bytes], str]:
    """Arrays and the store's own table may not differ; tables of users hold what they say; so does the manifest."""

    def wrong(found: Any, name: str, data: bytes) -> str:
        if found[2:4] != original[2:4]:
            return "other connectomes or series"
        if name.endswith("participants.tsv"):
            return wrong_cells(found[0], name, data)
        if name.endswith("rois.tsv"):
            return wrong_cells(found[1], name, data)
        if not name.endswith("cohort.json"):
            return "other values"
        given, wanted = json.loads(found[4]), json.loads(data)
        names = ("kind", "diagonal", "atlas", "source", "levels", "findings")
        other = [n for n, v in zip(names, given) if wanted.get(n) != v]
        return f"{other[0]}: {str(given)[:80]}" if other else ""

    return wrong


def opened(folder: str) -> Callable[[], Any]:
    """Return what opens a run: its result, and what it predicts of four people."""

    def read() -> Any:
        result = load_result(folder)
        few = bnt.load_cohort("cohort").select(np.arange(4))
        trained = TrainedRun(folder)
        trained.splits()
        return result.predictions.to_csv(index=False), trained.table(few).to_csv(index=False)

    return read


def strict(folder: str) -> Callable[[], Any]:
    """The same with everything else of the run, which its digests protect."""

    def read() -> Any:
        return *opened(folder)(), str(read_config(Path(folder))), str(load_result(folder).report)

    return read


def sealed(name: str) -> None:
    """Make the digests of a run anew."""
    if not name.endswith("DONE"):
        seal(Path(name).parent)


def scans(folder: str, **more: Any) -> Callable[[], Any]:
    """Return what reads a folder of scans into memory."""

    def read() -> Any:
        cohort = read_cohort(folder, **more)
        edges = np.asarray(cohort.edges(np.arange(len(cohort))), dtype=np.float64)
        return cohort.ids.tolist(), edges.tobytes(), edges.shape

    return read


def command(*words: str) -> Callable[[], Any]:
    """Return what runs a command in this process; its sentence is raised again."""
    import contextlib

    def read() -> Any:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = run_command(words[0], list(words[1:]))
        last = said.getvalue().strip().splitlines()[-1:] or [""]
        if code == 2 and last[0].startswith(f"bnt {words[0]}: ") and "Traceback" not in said.getvalue():
            raise BadInput(last[0])
        assert code == 0, f"code {code}: {said.getvalue()[-200:]}"

    return read


def study() -> Any:
    """Read a study: its description, its runs, its tables."""
    from bnt.studies import run_table
    from bnt.studies._chance import read_covariates
    from bnt.studies._results import read_study
    from bnt.studies._summary import read_tables

    tables = read_tables(Path("study")) or []
    described = read_study("study")
    around = read_covariates("study", described["splits"]) if isinstance(described.get("splits"), list) else None
    return [t.to_csv() for t in (*tables, run_table("study"))], "" if around is None else around.to_csv()


def wrong_study(found: Any, name: str, data: bytes) -> str:
    """Tables are under digests; what ``study.json`` says may change what is listed, not what was found."""
    if not name.endswith(("study.json", "covariates.csv")):
        return "other values"
    for text in (*found[0], found[1]):
        table = pd.read_csv(io.StringIO(text)) if text.strip() not in ("", '""') else pd.DataFrame()
        for column in ("auroc", "accuracy"):
            if column in table and not table[column].dropna().between(0, 1).all():
                return f"{column} of {table[column].tolist()[:3]}"
    return ""


def resumed() -> Any:
    """Merge the description of a study with the one that is asked for."""
    from bnt.splits import named_splits
    from bnt.studies import Study, Variant
    from bnt.studies._results import check_same, merged, read_old

    cohort = bnt.load_cohort("cohort")
    splits = named_splits(cohort, "diagnosis", "site-stratified", n_splits=2)
    variants = [Variant.from_dict(v) for v in json.loads(Path("study.json").read_text())["variants"]]
    new = Study("study", cohort, "diagnosis", variants, splits, protocol="site-stratified")
    old = read_old(Path("study"))
    if old is not None:
        check_same(Path("study"), old, new.description())
    found = merged(Path("study"), new.description())
    return json.dumps([found["splits"], found["split_sha256"], found["seeds"], found["label"], found["data_sha256"]])


def tuned() -> Any:
    """Read the tables of a search as the command does before it writes them again."""
    from bnt.studies._tuning import read_search

    return [table.to_csv() for table in read_search(Path("tuned"))]


def remembered() -> Any:
    """Ask whether the file of an own model may be run; and whether the note really says so."""
    from bnt.models._own import permitted

    config = read_config(Path("own"))
    name = permitted(config.model, config.source_sha256, Path("own"))
    try:
        known = json.loads((Path(os.environ["BNT_STATE"]) / "own_models.json").read_bytes())
    except ValueError:
        known = {}
    return name, config.source_sha256 in known.get(name.rpartition(":")[0], [])


def explanation() -> Any:
    """Read an explanation as the page of its run does."""
    from bnt.report._explained import read_explanation

    found = read_explanation(Path("linear/explain"))
    return None if found is None else [[p.png for p in found.pictures], found.sentences, found.warnings]


def wrong_explanation(found: Any, name: str, data: bytes) -> str:
    """Pictures are those of the folder."""
    there = {file.read_bytes() for file in Path("linear/explain").glob("*.png")}
    return "" if found is None or set(found[0]) <= there else "a picture from elsewhere"


def estimator() -> Any:
    """Load a saved estimator and predict."""
    made = bnt.BrainNetworkClassifier.load("estimator")
    values = made.predict_proba(bnt.load_cohort("cohort").edges(np.arange(4)))
    return [pd.DataFrame(values, columns=[f"p_{c}" for c in made.classes_]).to_csv(index=False)]


def people() -> Any:
    """Read a table of participants."""
    from bnt.sources._people import read_participants

    table = read_participants(Path("people.tsv")).table
    return [
        (c, table[c].astype(object).where(table[c].notna(), "n/a").tolist())
        for c in ("participant_id", "age")
        if c in table
    ]


def splits() -> Any:
    """Read a table of splits."""
    from bnt.splits import read_splits

    return [(s.name, s.train, s.validation, s.test) for s in read_splits("splits.csv", bnt.load_cohort("cohort"))]


def audited() -> Any:
    """Audit somebody's splits and predictions."""
    from bnt.splits import audit_splits

    return [str(f) for f in audit_splits("one-split.csv", bnt.load_cohort("cohort"), "scores.csv")]


def roi_table() -> Any:
    """Read a table of ROIs."""
    from bnt.sources._roi_tables import read_lut

    table = read_lut(Path("rois.tsv"))
    return [(c, table[c].fillna("n/a").tolist()) for c in ("label",) if c in table]


def targets() -> list[Target]:
    """Return everything that is broken, in the working directory that ``make`` filled."""
    cohort = sorted(str(file) for file in Path("cohort").rglob("*") if file.is_file())
    parts = [
        f"cut/{f}" for f in ("checkpoint.safetensors", "checkpoint.json", "metrics.jsonl", "config.toml", "splits.csv")
    ]
    state = str(Path(os.environ["BNT_STATE"]) / "own_models.json")
    tables = [
        f"study/{f}"
        for f in ("study.json", "summary.csv", "comparisons.csv", "runs.csv", "covariates.csv", "tables.sha256")
    ]
    pages = [f"linear/explain/{f}" for f in ("explain.json", "edges.csv")]
    note = [f"estimator/{f}" for f in ("config.toml", "weights.safetensors", "estimator.json", "DONE")]
    bids = sorted(str(f) for f in Path("bids").rglob("*") if f.is_file())
    dense = sorted(
        str(f) for f in Path("dense").rglob("*") if f.is_file() and "preproc" not in f.name and "mask" not in f.name
    )
    xcpd = sorted(str(f) for f in Path("xcpd").rglob("*.tsv"))
    every = [
        Target("cohort", cohort, store, wrong_store(store()), share=8),
        Target("run, digests as written", [f"run/{f}" for f in RUN], strict("run"), share=8),
        Target(
            "run, digests made anew", [f"run/{f}" for f in RUN], opened("run"), wrong_probabilities, sealed, share=8
        ),
        Target(
            "linear run, digests made anew",
            [f"linear/{f}" for f in RUN],
            opened("linear"),
            wrong_probabilities,
            sealed,
            share=6,
        ),
        Target(
            "kernel run, digests made anew",
            [f"kernels/{f}" for f in RUN],
            opened("kernels"),
            wrong_probabilities,
            sealed,
            share=4,
        ),
        Target("interrupted run", parts, lambda: cut(resume=True), restore=("cut",), share=3),
        Target("saved estimator", note, estimator, share=3),
        Target("saved estimator, digests made anew", note, estimator, wrong_probabilities, sealed, share=3),
        Target("files of own models", [state], remembered, share=3),
        Target("study", tables, study, wrong_study, share=4),
        Target("study to resume", ["study/study.json"], resumed, legal, share=2),
        Target("search to resume", ["tuned/trials.csv", "tuned/chosen.csv"], tuned, legal, share=2),
        Target("explanation", pages, explanation, wrong_explanation, share=4),
        Target("table of splits", ["splits.csv"], splits, wrong_splits, share=6),
        Target("audited tables", ["one-split.csv", "scores.csv"], audited, legal, share=4),
        Target("participants", ["people.tsv"], people, wrong_cells, share=6),
        Target("table of ROIs", ["rois.tsv"], roi_table, wrong_cells, share=3),
        *(_scan_target(kind) for kind in SCANS),
        Target("XCP-D series and motion", xcpd, scans("xcpd"), legal, share=3),
        Target(
            "XCP-D matrices", sorted(str(f) for f in Path("xcpd-m").rglob("*.tsv")), scans("xcpd-m"), legal, share=3
        ),
        Target("authors' pickle", ["abide.npy"], scans("abide.npy"), legal, share=4),
        Target(
            "fMRIPrep and atlas",
            [*bids, "six.nii.gz", "six.tsv"],
            scans("bids/derivatives/fmriprep", atlas="six.nii.gz"),
            wrong_images,
            share=1.5,
        ),
        Target(
            "dense fMRIPrep and labels",
            [*dense, "parcels.dlabel.nii"],
            scans("dense/fmriprep", atlas="parcels.dlabel.nii"),
            wrong_images,
            share=1.5,
        ),
        Target(
            "page of a run",
            [f"run/{f}" for f in RUN],
            command("report", "run", "--out", "page.html"),
            legal,
            sealed,
            share=0.15,
        ),
        Target("page of an explanation", pages, command("report", "linear", "--out", "page.html"), legal, share=0.15),
        Target("page of a study", tables, command("report", "study", "--out", "page.html"), legal, share=0.15),
        Target("info", cohort, command("info", "cohort", "--verify"), legal, share=1),
    ]
    return [target for target in every if all(Path(file).is_file() for file in target.files)]


def _scan_target(kind: str) -> Target:
    files = sorted(str(file) for file in Path(f"scans-{kind}").iterdir())
    return Target(f"scans, .{kind}", files, scans(f"scans-{kind}"), wrong_scans, share=5)
