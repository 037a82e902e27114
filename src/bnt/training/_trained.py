"""Opens trained models: a finished run with its results, or an exported model from a folder or a hub.

A run's folder is sealed by ``DONE``. An exported model (``config.json``, ``model.safetensors``, a card) is written by
:mod:`bnt.training._export`; on a hub it is ``hf://owner/name``.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._files import has_sums, read_json, readable, sha256_of, write_sums, wrong_sum
from bnt.errors import BadInput, in_one_line
from bnt.models import find_entry
from bnt.models._own import permitted
from bnt.splits import Split, read_splits
from bnt.training._checkpoint import load_tensors
from bnt.training._config import RunConfig, config_of, read_config, roi_names
from bnt.training._learner import make_learner

# -- exported models, here and on a hub -----------------------------------------------------------------

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"  # the names that model hubs look for
FILES = (CONFIG, WEIGHTS, CARD, "model.onnx")
FORMAT = "bnt-model-1"
PREFIX = "hf://"
_WORD = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
AGAIN = "copy, download or export it again"


@dataclass(frozen=True)
class SharedModel:
    """What an exported model says of itself."""

    config: RunConfig
    threshold: float
    report: dict[str, Any]
    """What its test set gave, as in a run's ``report.json``, without what is about single scans."""


def is_shared(folder: Path) -> bool:
    """Whether this is an exported model, and not a run."""
    return (folder / CONFIG).is_file() and not (folder / "config.toml").is_file()


def shareable(config: RunConfig, model: str) -> RunConfig:
    """Return a configuration without the folders and the device of this machine."""
    return replace(config, model=model, cohort="", device="cpu", threads=1)


def read_shared(folder: Path) -> SharedModel:
    """Read what an exported model says of itself, and check its digests; whoever made the folder chose both."""
    file, weights = folder / CONFIG, folder / WEIGHTS
    data = read_json(file, AGAIN)
    if data.get("format") != FORMAT:
        raise BadInput(f"{file} is not of a model that bnt exports (format {FORMAT}): give a folder of bnt export.")
    if not weights.is_file():
        raise BadInput(f"The model {folder} is damaged ({WEIGHTS}: it is missing): {AGAIN}.")
    with readable(file, AGAIN):
        config = config_of(data["config"])
        if config.digest() != data["config_sha256"]:
            raise ValueError("the sha256 of its settings is another")
        if sha256_of(weights) != data["weights_sha256"]:
            raise BadInput(
                f"The model {folder} is damaged ({WEIGHTS}: its sha256 is not the one in {CONFIG}): {AGAIN}."
            )
        threshold, report = float(data["threshold"]), dict(data["report"])
        if not 0 <= threshold <= 1:
            raise ValueError(f"its threshold is {threshold}")
    # A folder of this machine that it may name is not opened.
    return SharedModel(shareable(config, config.model), threshold, report)


def repository(word: str | Path) -> tuple[str, str | None]:
    """Return owner and name, and the revision where one is given.

    Examples
    --------
    >>> repository("hf://lab/autism-bnt@v1")
    ('lab/autism-bnt', 'v1')
    """
    found = _WORD.fullmatch(str(word))
    if found is None:
        raise BadInput(f"{word} is not a model on the hub: write hf://owner/name, or hf://owner/name@revision.")
    return found[1], found[2]


def hub_library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise BadInput(
            "Models on the hub need the package huggingface_hub: pip install 'brain-network-transformer[hub]'."
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    return huggingface_hub


def local_model(word: str | Path) -> Path:
    """Return the folder of a model: a path as it is, a model on the hub once it is downloaded.

    Only the files of an export are downloaded, whatever else the repository holds; nothing in them is run.
    """
    if not str(word).startswith("hf:/"):
        return Path(word)
    name, revision = repository(word)
    hub, word = hub_library(), PREFIX + str(word)[3:].lstrip("/")
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES[:3])))
    except Exception as error:  # of the network, the hub, or the name: the library's own words say which
        raise BadInput(
            f"{word} cannot be downloaded ({in_one_line(error, besides=__file__)}): check its name and your access."
        ) from error
    if not (folder / CONFIG).is_file():
        raise BadInput(f"{word} has no {CONFIG}, so it is not a model of bnt export.")
    return folder


# -- DONE: the digest of every file of a run ---------------------------------------------------------

SEALED = (
    "config.toml",
    "splits.csv",
    "metrics.jsonl",
    "weights.safetensors",
    "predictions.csv",
    "report.json",
    "model_card.md",
    "estimator.json",
)
_OLD_DONE = re.compile(r"[0-9a-f]{64}\s*")  # the sha256 of the configuration


def seal(folder: Path) -> None:
    """Write ``DONE``, the last file of a run: the sha256 of every other, as ``sha256sum --check DONE`` reads it."""
    write_sums(folder / "DONE", SEALED)


def damage(folder: Path) -> tuple[str, str] | None:
    """Return which file of a finished run is damaged, and how; None where all are as they were written.

    ``DONE`` of bnt 0.1 and 0.2 has no digest of files: there the weights are checked, whose digest is in the report.
    """
    if has_sums(folder / "DONE"):
        return wrong_sum(folder / "DONE", SEALED)
    if not _OLD_DONE.fullmatch((folder / "DONE").read_text(encoding="utf-8", errors="replace")):
        return "DONE", "it is not as it was written"
    return _old_damage(folder)


def _old_damage(folder: Path) -> tuple[str, str] | None:
    """Check a run of bnt 0.1 or 0.2."""
    names: tuple[str, ...] = ("config.toml", "weights.safetensors")
    if not (folder / "estimator.json").is_file():
        names += ("splits.csv", "predictions.csv", "report.json")
    for name in names:
        if not (folder / name).is_file():
            return name, "it is missing"
    if "report.json" in names:
        try:
            wanted = read_json(folder / "report.json", "train again").get("weights_sha256")
        except BadInput:
            return "report.json", "it is not JSON"
        if wanted not in (None, sha256_of(folder / "weights.safetensors")):
            return "weights.safetensors", "its sha256 is not the one in report.json"
    return None


def check_finished(folder: Path) -> None:
    """Refuse a run that is not finished or whose files have changed since; every command asks here."""
    if not (folder / "DONE").is_file():
        raise BadInput(f"{folder} is not finished: resume it with bnt train ... --out {folder} --resume.")
    found = damage(folder)
    if found is not None:
        raise BadInput(
            f"The run {folder} is damaged ({found[0]}: {found[1]}): run the command that made it again "
            "(bnt train with --resume, or bnt compare) or copy it again."
        )


def clear(folder: Path) -> None:
    """Remove the files of a damaged run, ``DONE`` first, and say so; it is then made anew."""
    name, how = damage(folder) or ("DONE", "it is missing")
    warnings.warn(f"The run {folder} is damaged ({name}: {how}): it is made anew.", stacklevel=2)
    for file in ("DONE", *SEALED):
        (folder / file).unlink(missing_ok=True)


def read_predictions(folder: Path) -> pd.DataFrame:
    """Read the ``predictions.csv`` of a run; a class may be named None or NA."""
    file = folder / "predictions.csv"
    with readable(file, "make the run anew"):
        words = dict.fromkeys(("participant_id", "site", "person"), str)
        table = pd.read_csv(file, dtype=words, keep_default_na=False, na_values=[""], encoding="utf-8")
        columns = [c for c in table.columns if c.startswith("p_") or c == "predicted"]
        wrong = {"participant_id", "part", "site", "label"} - set(table.columns) or not columns
        values = table[columns].to_numpy(dtype=np.float64)
        if wrong or table.empty or not np.isfinite(values).all() or table["participant_id"].isna().any():
            raise ValueError("its columns or its numbers are not those of predictions")
        if columns != ["predicted"] and (np.abs(values.sum(axis=1) - 1) > 1e-3).any() | (values < 0).any():
            raise ValueError("its probabilities do not sum to 1")
    return table


@dataclass
class RunResult:
    """What a run found: its folder, configuration, report and predictions."""

    folder: Path
    config: RunConfig
    report: dict[str, Any]
    predictions: pd.DataFrame


def load_result(folder: str | Path) -> RunResult:
    """Read a finished run."""
    folder = Path(folder)
    config = read_config(folder)
    check_finished(folder)
    report = read_json(folder / "report.json", "make the run anew")
    return RunResult(folder, config, report, read_predictions(folder))


def of_people(table: pd.DataFrame) -> pd.DataFrame:
    """Return predictions with one row per person: numbers of several scans are averaged, of words the first is taken.

    A person whose class changes between scans has one row per class; of a score the mean is taken. A table without a
    column ``person`` has one scan per person, and is returned as it is.
    """
    if "person" not in table:
        return table
    keys = [c for c in ("part", "person") if c in table] + (["label"] if "predicted" not in table else [])
    values = [c for c in table.columns if c not in keys and pd.api.types.is_numeric_dtype(table[c])]
    grouped = table.groupby(keys, sort=False)
    rest = [c for c in table.columns if c not in (*keys, *values)]
    people = grouped[values].mean().join(grouped[rest].first()).reset_index()
    changed = people.duplicated([c for c in keys if c != "label"], keep=False)
    people["participant_id"] = people["person"].where(~changed, people["person"] + " " + people["label"].astype(str))
    return people[table.columns]


# -- the model -----------------------------------------------------------------------------------------


class TrainedRun:
    """A finished run, opened for prediction: its weights and settings.

    Parameters
    ----------
    folder : path
        A folder made by ``bnt train``, by the ``save`` of an estimator, or by ``bnt export``.
    device : str, optional
        Device of the networks; by default the one they were trained on.
    options : dict, optional
        Options of the model that ``config.toml`` cannot store.
    model_file : path, optional
        The file of a model of one's own. It is run; without it only a file that you trained with here is.

    Attributes
    ----------
    config : RunConfig
    learner : Learner
        The fitted model.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> trained.predict(cohort).shape
    (40, 2)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str | None = None,
        options: dict[str, Any] | None = None,
        model_file: str | Path | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._shared = read_shared(self.folder) if is_shared(self.folder) else None
        self.config: RunConfig = read_config(self.folder) if self._shared is None else self._shared.config
        weights = self.folder / ("weights.safetensors" if self._shared is None else WEIGHTS)
        if self._shared is None:
            check_finished(self.folder)
        if device is not None:
            self.config = replace(self.config, device=device)
        if options is not None:
            self.config = replace(self.config, options=options)
        model = permitted(self.config.model, self.config.source_sha256, self.folder, model_file)
        self.config = replace(self.config, model=model)
        entry = find_entry(model)
        revision = entry.revision
        if self.config.revision != revision:
            raise BadInput(
                f"{folder} was made by revision {self.config.revision} of {self.config.model}, this bnt has revision "
                f"{revision}, which gives other numbers: train again, or use the bnt that made it."
            )
        named, _ = load_tensors(weights)
        if not named or (entry.is_own and not entry.trains_in_epochs):
            raise BadInput(
                f"{folder} keeps no weights: its scikit-learn estimator could be kept as a pickle only, which bnt "
                "neither writes nor reads; fit it in Python."
            )
        with readable(weights, f"it does not fit {self.config.model}, train again"):
            self.learner = make_learner(self.config)
            self.learner.load(named)

    @property
    def threshold(self) -> float:
        """The probability above which the positive class is predicted: chosen on validation, or 0.5."""
        if self._shared is not None:
            return self._shared.threshold
        if self.config.adjustments.threshold is None:
            return 0.5
        return float(load_result(self.folder).report["threshold"])

    def check(self, cohort: Cohort) -> None:
        """Refuse a cohort whose numbers are not what the model was trained on."""
        c = self.config
        if cohort.n_rois != c.n_rois:
            lengths = cohort.participants["n_volumes"].dropna()
            turned = len(lengths) > 0 and (lengths == c.n_rois).all()
            raise BadInput(
                f"{cohort.path or 'The source'} has {cohort.n_rois} ROIs, the model of {self.folder} was trained on "
                f"{c.n_rois}: {'its rows seem to be ROIs, transpose the table' if turned else 'use the same atlas'}."
            )
        self._check_order(cohort)
        if "unknown" not in (cohort.kind, c.kind) and cohort.kind != c.kind:
            raise BadInput(
                f"{cohort.path or 'The source'} holds {cohort.kind!r} connectomes, the model of {self.folder} was "
                f"trained on {c.kind!r}: import it as {c.kind!r}.",
                "kind",
            )
        if find_entry(c.model).needs_series and cohort.timeseries is None:
            raise BadInput(f"Model {c.model!r} reads time series and {cohort.path or 'the source'} has none.")

    def _check_order(self, cohort: Cohort) -> None:
        """Refuse ROIs in another order; warn of other names, which may be another spelling or another atlas."""
        mine, theirs = roi_names(cohort), self.config.rois
        if not mine or not theirs or mine == theirs:
            return
        at = next(i for i, pair in enumerate(zip(mine, theirs)) if pair[0] != pair[1])
        where = f"{cohort.path or 'The source'} has {mine[at]!r} as ROI {at + 1}"
        found = f"{where}, the model was trained with {theirs[at]!r} there"
        if sorted(mine) == sorted(theirs):
            raise BadInput(f"{found}: put the ROIs into the order of the training data.")
        warnings.warn(f"{found}: make sure that it is the same atlas in the same order.", stacklevel=2)

    def splits(self) -> Split:
        """Return who was trained on, selected on and tested on; a saved or exported model does not know them."""
        if not (self.folder / "splits.csv").is_file():
            raise BadInput(f"{self.folder} keeps no split: it is a saved estimator or an exported model, not a run.")
        return read_splits(self.folder / "splits.csv")[0]

    def predict(self, cohort: Cohort) -> np.ndarray:
        """Return class probabilities (n, C), or targets (n, 1) in their own units."""
        self.check(cohort)
        found = self.learner.predict(cohort)
        if not np.isfinite(found).all():
            who = cohort.ids[~np.isfinite(found).all(axis=1)][0]
            raise BadInput(
                f"The model of {self.folder} does not predict a finite number for {who}: its weights or this "
                "connectome are damaged."
            )
        return found

    def table(self, cohort: Cohort) -> pd.DataFrame:
        """Return predictions as a table: participant, probability of each class and the likeliest, or the score."""
        predicted = self.predict(cohort)
        table = pd.DataFrame({"participant_id": cohort.ids})
        if self.config.task.kind == "regression":
            return table.assign(predicted=predicted[:, 0])
        classes = self.config.task.classes
        for i, name in enumerate(classes):
            table[f"p_{name}"] = predicted[:, i]
        return table.assign(predicted=self.config.task.called(predicted, self.threshold))
