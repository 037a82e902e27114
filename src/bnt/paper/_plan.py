"""The plan of a reproduction: which cohort, which splits, which budget, and which variants fit the cohort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.models import count_parameters, find_entry, model_options
from bnt.paper._printed import CLUSTERS
from bnt.splits import Split, named_splits
from bnt.splits._protocols import canonical
from bnt.studies._job import Variant
from bnt.studies._slurm import Slurm
from bnt.training._config import check_device, options_for
from bnt.training._recipe import Recipe, find_recipe
from bnt.training._task import task_for


@dataclass(frozen=True)
class Preset:
    """A budget: how many splits, which recipe, and what it sets for every network alike, whatever its own row says."""

    splits: int
    recipe: str
    settings: Mapping[str, Any]


# Fixed before the tables were made, the same for every network: up to 40 epochs, less where validation stands still.
STOPPING = {"epochs": 40, "patience": 10, "select": "smoothed"}
PRESETS = {
    "quick": Preset(2, "default", {"epochs": 8}),
    "standard": Preset(5, "default", STOPPING),
    "full": Preset(20, "paper", {"epochs": 200}),
}
SIZES = (50, 100, 200, 400)
FRACTIONS = tuple(i / 10 for i in range(1, 11))


@dataclass(frozen=True)
class Plan:
    """What to reproduce with.

    Attributes
    ----------
    cohort : Cohort
        On disk.
    out : path
        Folder of this table or figure.
    label, protocol, preset : str
        What is predicted, who is tested, how much is spent.
    splits, epochs : int, optional
        In place of the preset's.
    changes : mapping
        Fields of the recipe to set.
    model : str
        The model of the figures about OCRead: ``bnt``, or ``bnt-released``.
    only : tuple of str
        Names of variants to keep; all when empty.
    model_options : mapping
        For each model, options on top of those of the table.
    clusters, fractions, sizes : tuple
        K of Figure 3a; shares of the training part of the learning curve; V of the measured complexity.
    jobs, threads, device, engine, address, slurm, split_seed, seeds
        As in ``bnt compare``.
    together : bool
        Whether this is a part of ``all``, so that parts with the same runs share them.
    what : str
        Which table or figure this is; marks its folder before the first run.
    command : str
        What was typed, to be kept beside the results.
    watch : callable, optional
        Makes a context manager that shows a study's progress.
    say : callable
        Told one line before anything long begins.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from pathlib import Path
    >>> from bnt.paper import Plan
    >>> Plan(cohort, Path("table1"), preset="quick").n_splits
    2
    """

    cohort: Cohort
    out: Path
    label: str = "diagnosis"
    protocol: str = "site-stratified"
    preset: str = "standard"
    splits: int | None = None
    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    model: str = "bnt"
    only: tuple[str, ...] = ()
    model_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clusters: tuple[int, ...] = CLUSTERS
    fractions: tuple[float, ...] = FRACTIONS
    sizes: tuple[int, ...] = SIZES
    jobs: int = 1
    threads: int = 1
    device: str = "cpu"
    engine: str = "local"
    address: str | None = None
    slurm: Slurm | None = None
    split_seed: int = 0
    seeds: tuple[int, ...] = (0,)
    together: bool = False
    what: str = ""
    command: str = ""
    watch: Callable[[], Any] | None = None
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", canonical(self.protocol))
        if self.preset not in PRESETS:
            raise BadInput(f"Unknown preset {self.preset!r}: choose one of {', '.join(PRESETS)}.", parameter="preset")
        for name in ("splits", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} is {value}: ask for at least 1.", parameter=name)
        if min(self.sizes, default=0) < 10 or len(set(self.sizes)) < len(self.sizes):
            given = " ".join(map(str, self.sizes))
            raise BadInput(f"sizes is {given}: give different numbers of ROIs, each 10 or more.", parameter="sizes")
        check_device(self.device)
        if self.cohort.path is None:
            raise BadInput("A reproduction needs a cohort on disk: save it first with cohort.save(folder).")

    @property
    def n_splits(self) -> int:
        """How many splits."""
        return self.splits or PRESETS[self.preset].splits

    @property
    def recipe_name(self) -> str:
        """The recipe's name."""
        return PRESETS[self.preset].recipe

    @property
    def recipe(self) -> Recipe:
        """How networks are trained, before what a model's catalogue row sets."""
        return self.recipe_for(None)

    def recipe_for(self, model: str | None) -> Recipe:
        """Return the recipe of one model: its catalogue row, then the preset, then what was asked for."""
        changes = dict(PRESETS[self.preset].settings)
        if self.preset == "standard":  # small cohorts still make the steps that the model needs
            changes["min_steps"] = find_recipe(self.recipe_name, model).min_steps
        asked = {**({"epochs": self.epochs} if self.epochs else {}), **self.changes}
        if "epochs" in asked:
            changes.pop("min_steps", None)
        return find_recipe(self.recipe_name, model, **{**changes, **asked})

    @property
    def dataset(self) -> str:
        """Whose printed numbers stand beside ours: ABCD's at 360 ROIs, ABIDE's otherwise."""
        return "ABCD" if self.cohort.n_rois == 360 else "ABIDE"

    def variant(self, name: str, model: str, **options: Any) -> Variant:
        """Return a variant with this plan's recipe and options."""
        merged = {**options, **self.model_options.get(model, {})}
        return Variant(name, model, merged, self.recipe_name, self.recipe_for(model))

    def asks_for(self, variant: str, model: str) -> bool:
        """Whether ``only`` names a variant, by its own name or its model's; without it all are asked for."""
        return not self.only or variant in self.only or model in self.only

    def asked(self, variants: Sequence[Variant]) -> list[Variant]:
        """Return the variants that are asked for; a name that is none of them is refused."""
        known = {word for v in variants for word in (v.name, v.model)}
        unknown = [word for word in self.only if word not in known]
        if unknown:
            names = ", ".join(v.name for v in variants)
            raise BadInput(f"only names {', '.join(unknown)}, but the rows here are {names}.", parameter="only")
        return [v for v in variants if self.asks_for(v.name, v.model)]

    def named_splits(self) -> list[Split]:
        """Return the splits with their names."""
        return named_splits(self.cohort, self.label, self.protocol, n_splits=self.n_splits, seed=self.split_seed)

    def class_name(self, value: object) -> str:
        """Return a class in words, such as ``diagnosis = 1 (ASD)``."""
        words = self.cohort.levels.get(self.label, {}).get(str(value))
        return f"{self.label} = {value}" + (f" ({words})" if words else "")

    def check_binary(self) -> None:
        """Refuse a label that does not have two classes: every table of the paper is about two."""
        task = task_for(self.cohort.labels(self.label))
        if task.n_outputs != 2:
            raise BadInput(
                f"Label {self.label!r} of {self.cohort.path} does not have two classes, and the paper's tables are "
                "about two: choose another label.",
                parameter="label",
            )


def runnable(cohort: Cohort, variants: Sequence[Variant]) -> tuple[list[Variant], dict[str, str]]:
    """Return the variants that this cohort allows, and why it does not allow the others.

    Networks are made without memory, so that this costs nothing: a model that needs series, more clusters than
    ROIs, or a number of ROIs that the heads do not divide is found here and not after hours.
    """
    kept, reasons = [], {}
    for variant in variants:
        entry = find_entry(variant.model)
        if entry.needs_series and cohort.timeseries is None:
            reasons[variant.name] = f"{variant.model} reads time series, and the cohort has none"
            continue
        if entry.trains_in_epochs:
            try:
                options = options_for(cohort, variant.model, variant.options)
                count_parameters(variant.model, cohort.n_rois, 2, **options)
            except BadInput as error:
                reasons[variant.name] = str(error).rstrip(".")
                continue
        kept.append(variant)
    return kept, reasons


def fitted(cohort: Cohort, variant: Variant) -> tuple[Variant, str]:
    """Return a variant whose defaults fit the number of ROIs, and what was changed, in words; nothing where they do.

    No more clusters than ROIs, and the largest number of heads, up to the default, that divides a node's width. What
    was asked for by name stays, so that a study of clusters leaves out those that there cannot be.
    """
    entry = find_entry(variant.model)
    if not entry.trains_in_epochs or (entry.needs_series and cohort.timeseries is None):
        return variant, ""
    defaults, changed = model_options(variant.model), {}
    clusters = defaults.get("n_clusters")
    if clusters and "n_clusters" not in variant.options and clusters > cohort.n_rois:
        changed["n_clusters"] = cohort.n_rois
    free = "n_heads" in defaults and "n_heads" not in variant.options
    for heads in range(defaults["n_heads"], 0, -1) if free else ():
        own = {"n_heads": heads} if heads != defaults["n_heads"] else {}
        options = options_for(cohort, variant.model, {**variant.options, **changed, **own})
        try:
            count_parameters(variant.model, cohort.n_rois, 2, **options)
        except BadInput:
            continue  # with fewer heads it may fit; what fits with none is said by runnable
        changed |= own
        break
    if not changed:
        return variant, ""
    words = ", ".join(f"{name}={value} in place of {defaults[name]}" for name, value in changed.items())
    return replace(variant, options={**variant.options, **changed}), f"{words}, to fit {cohort.n_rois} ROIs"


def prepare(plan: Plan, variants: Sequence[Variant]) -> tuple[list[Variant], dict[str, str], dict[str, str]]:
    """Return the variants to run, why others cannot be, and what was changed to fit the cohort; both are said.

    Raises
    ------
    BadInput
        Where none can be run.
    """
    both = [fitted(plan.cohort, variant) for variant in plan.asked(variants)]
    kept, missing = runnable(plan.cohort, [variant for variant, _ in both])
    names = {variant.name for variant in kept}
    changed = {variant.name: words for variant, words in both if words and variant.name in names}
    for heading, reasons in (("Changed", changed), ("Skipped", missing)):
        for reason in dict.fromkeys(reasons.values()):
            plan.say(f"{heading}: {', '.join(name for name, why in reasons.items() if why == reason)}: {reason}.")
    if not kept:
        raise BadInput(f"Nothing can be run on {plan.cohort.path}: {next(iter(missing.values()))}.")
    return kept, missing, changed
