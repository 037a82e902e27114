"""Recipes: training hyperparameters as plain data. Four recipes have names, and every field can be changed.

Beside them the adjustments: what is done around any model, as plain data too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal, get_args, get_type_hints

from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models._registry import check_value


@dataclass(frozen=True)
class Recipe:
    """Training hyperparameters of a network.

    Attributes
    ----------
    inputs
        ``raw`` gives networks the connectomes unchanged; ``centred`` subtracts the mean of the training set (and
        divides by its SD).
    epochs, min_steps, batch_size, drop_last
        Epochs, increased for small cohorts to reach ``min_steps`` steps; subjects per step; whether a last short batch
        is left out.
    lr, lr_end, warmup, horizon, count_dropped
        Learning rate at the start and the end of a cosine counted in real steps; ``warmup`` is the
        share of steps that rise linearly to ``lr`` first; ``horizon`` plans the cosine for more epochs
        than are made (0 plans it for ``epochs``); ``count_dropped`` plans it, as the released code does, for
        ceil(n / batch_size) steps per epoch even where the last batch is left out.
    weight_decay, decoupled
        L2 penalty as in the paper (Adam), or decoupled from the gradient (AdamW).
    halve_every
        Halve the learning rate every so many epochs instead of the cosine schedule; 0 is off.
    reduction
        Whether the loss of a batch is the mean or, as in the released code, the sum over subjects.
    mixup
        Both parameters of the Beta distribution of the mixing weight; 0 is off.
    label_smoothing, clip
        Weight of the uniform distribution in the target; largest gradient norm (0 is off).
    ema
        Decay per step of the averaged weights that are validated and tested; 0 is off.
    select
        Epoch whose weights are tested: ``best`` validation score (the earliest on ties), best trailing mean of
        ``smooth`` epochs (``smoothed``), or the ``last`` epoch.
    patience
        Stop after this many epochs without a better (smoothed) validation score; 0 is never.
    n_members
        Networks trained from different seeds; their probabilities are averaged.
    refit
        Train again on training + validation for as many epochs as were selected.

    Examples
    --------
    >>> from bnt.training import Recipe
    >>> Recipe(epochs=3, batch_size=8).epochs
    3
    """

    inputs: Literal["raw", "centred"] = "raw"
    epochs: int = 40
    min_steps: int = 0
    batch_size: int = 16
    drop_last: bool = True
    lr: float = 1e-4
    lr_end: float = 1e-5
    warmup: float = 0.0
    horizon: int = 0
    count_dropped: bool = False
    weight_decay: float = 1e-4
    decoupled: bool = False
    halve_every: int = 0
    reduction: Literal["mean", "sum"] = "mean"
    mixup: float = 0.0
    label_smoothing: float = 0.0
    clip: float = 0.0
    ema: float = 0.0
    select: Literal["best", "smoothed", "last"] = "best"
    smooth: int = 5
    patience: int = 0
    n_members: int = 1
    refit: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot be trained with."""
        for name, kind in get_type_hints(type(self)).items():
            if kind is float and not isfinite(getattr(self, name)):
                raise BadInput(f"Recipe: {name} is {getattr(self, name)}, it must be a finite number.", name)
            words = get_args(kind)
            if words and getattr(self, name) not in words:
                raise BadInput(f"Recipe: {name} is {getattr(self, name)!r}, it must be one of {', '.join(words)}.")
        for name in ("min_steps", "horizon", "patience", "halve_every"):
            if getattr(self, name) < 0:
                raise BadInput(f"Recipe: {name} is {getattr(self, name)}, it must not be negative.")
        for name in ("epochs", "batch_size", "n_members", "smooth"):
            if getattr(self, name) < 1:
                raise BadInput(f"Recipe: {name} is {getattr(self, name)}, it must be at least 1.")
        for name in ("warmup", "ema", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"Recipe: {name} is {getattr(self, name)}, it must be at least 0 and below 1.")
        if self.horizon and self.horizon < self.epochs:
            raise BadInput(f"Recipe: horizon is {self.horizon}, it must be 0 or at least epochs ({self.epochs}).")
        if self.lr <= 0 or self.lr_end < 0 or self.weight_decay < 0 or self.mixup < 0 or self.clip < 0:
            raise BadInput("Recipe: lr must be positive; lr_end, weight_decay, mixup and clip not negative.")

    def steps_per_epoch(self, n_train: int) -> int:
        """Return the steps of one pass over ``n_train`` subjects; a last batch of one subject is never made."""
        full, rest = divmod(n_train, self.batch_size)
        return full + (rest > 1 and not self.drop_last)

    def planned_steps(self, n_train: int, epochs: int) -> int:
        """Return the steps that the learning rate is planned for: ``horizon`` or at least ``epochs`` epochs."""
        per_epoch = -(-n_train // self.batch_size) if self.count_dropped else self.steps_per_epoch(n_train)
        return max(self.horizon or self.epochs, epochs) * per_epoch

    def for_steps(self, steps_per_epoch: int) -> Recipe:
        """Return the recipe with as many epochs as ``min_steps`` asks for, its horizon raised alike."""
        epochs = max(self.epochs, -(-self.min_steps // max(steps_per_epoch, 1)))
        return replace(self, epochs=epochs, horizon=max(self.horizon, epochs) if self.horizon else 0)


RECIPES: dict[str, Recipe] = {
    # As the paper prints it (section 4.1): Adam 1e-4, weight decay 1e-4, batch 64, 200 epochs, best validation AUROC.
    "paper": Recipe(epochs=200, batch_size=64, drop_last=False, lr_end=1e-4),
    # As the authors' code behaves: batch 16, mixup Beta(1, 1), cosine 1e-4 to 1e-5, summed loss, last weights. Its
    # cosine counts the batches that are dropped: on ABIDE 9,000 steps are planned and 8,800 made.
    "released": Recipe(epochs=200, count_dropped=True, mixup=1.0, reduction="sum", select="last"),
    # Ours: averaged weights, and as many steps as the validation curve of ABIDE needs (results/abide/README.md).
    "default": Recipe(
        epochs=12, min_steps=528, lr=1e-4, mixup=1.0, reduction="sum", ema=0.99, select="smoothed", patience=12
    ),
}
# What to use for the best score: as ``default``, then fitted again on training and validation together.
RECIPES["best"] = replace(RECIPES["default"], refit=True)


def find_recipe(name: str, model: str | None = None, **changes: Any) -> Recipe:
    """Return a named recipe with some fields changed.

    Parameters
    ----------
    name : str
        ``paper``, ``released``, ``default`` or ``best``.
    model : str, optional
        The model to train. Its entry in the catalogue overrides fields of the recipe (``training`` in every recipe,
        ``budget`` in ``default`` and ``best``).
    **changes
        Fields of :class:`Recipe` to change; None keeps the value of the recipe.

    Examples
    --------
    >>> from bnt.training import find_recipe
    >>> find_recipe("released").batch_size
    16
    >>> find_recipe("default", epochs=5).epochs
    5
    """
    if name not in RECIPES:
        raise BadInput(f"Unknown recipe {name!r}; there are {', '.join(RECIPES)}.")
    known = [f.name for f in fields(Recipe)]
    for change in changes:
        if change not in known:
            near = get_close_matches(change, known, n=1)
            hint = f"did you mean {near[0]!r}? Its" if near else "its"
            raise BadInput(f"A recipe has no field {change!r}; {hint} fields are {', '.join(known)}.")
    for change, value in changes.items():
        check_value(f"Recipe: {change}", getattr(RECIPES[name], change), value)
    if changes.get("epochs") is not None:
        changes.setdefault("min_steps", 0)  # a number of epochs that was asked for is the number of epochs
    own: dict[str, Any] = {}
    if model is not None:
        entry = find_entry(model)
        own = {**entry.training, **(entry.budget if name in ("default", "best") else {})}
        for field, value in own.items():
            if field not in known:
                raise BadInput(f"training of {model} sets {field!r}; the fields of a recipe are {', '.join(known)}.")
            check_value(f"training of {model}: {field}", getattr(RECIPES[name], field), value)
    return replace(RECIPES[name], **{**own, **{k: v for k, v in changes.items() if v is not None}})


@dataclass(frozen=True)
class Adjustments:
    """Steps around a model (harmonisation, confounds, class weights, threshold) as plain data; the defaults do nothing.

    Attributes
    ----------
    harmonise
        ``combat`` harmonises the edges of sites.
    keep
        Columns of ``participants.tsv`` whose effects ComBat preserves, joined by ``+``. The label is refused, because
        it is not known for new subjects.
    confounds
        Columns to regress out, joined by ``+``: out of the features of linear models, out of the decisions of networks
        that read time series, and out of the edges for all other models (:mod:`bnt.training._adjustments`).
    class_weight
        ``balanced`` weights each class by the inverse of its share of the training set.
    threshold
        ``validation`` selects the threshold with the highest balanced accuracy on the validation set; 0.5 by default.

    Examples
    --------
    >>> from bnt.training import Adjustments
    >>> Adjustments(harmonise="combat", keep="age+sex").columns
    ('age', 'sex')
    """

    harmonise: Literal["combat"] | None = None
    keep: str = ""
    confounds: str = ""
    class_weight: Literal["balanced"] | None = None
    threshold: Literal["validation"] | None = None

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            words = [word for part in get_args(kind) for word in get_args(part)]
            value = getattr(self, name)
            if words and value is not None and value not in words:
                raise BadInput(f"{name} is {value!r}, it must be {' or '.join(words)}, or left out.", name)
        if self.keep and self.harmonise is None:
            raise BadInput(
                f"{self.keep!r} is to be preserved, but nothing is harmonised: add harmonise combat.", "harmonise_keep"
            )

    @classmethod
    def from_dict(cls, data: dict[str, Any] | None) -> Adjustments:
        """Undo :meth:`to_dict`."""
        return cls(**(data or {}))

    def to_dict(self) -> dict[str, Any]:
        """Return what is set."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of ``participants.tsv`` that are read."""
        return tuple(dict.fromkeys([*names_of(self.keep), *names_of(self.confounds)]))

    @property
    def changes_edges(self) -> bool:
        """Whether edges are changed before a model reads them."""
        return bool(self.harmonise or self.confounds)

    def described(self) -> list[str]:
        """Return what is done, in phrases."""
        kept = f", keeping {', '.join(names_of(self.keep))}" if self.keep else ""
        found = [f"sites harmonised by ComBat{kept}"] if self.harmonise else []
        found += [f"{', '.join(names_of(self.confounds))} regressed out"] if self.confounds else []
        found += ["classes weighted to balance"] if self.class_weight else []
        return found + (["threshold chosen on validation"] if self.threshold else [])


FIELDS = tuple(field.name for field in fields(Adjustments))


def names_of(text: str) -> tuple[str, ...]:
    """Return the columns of ``age+sex``."""
    return tuple(name for name in text.split("+") if name)
