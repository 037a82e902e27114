"""Lookup of models: by name, group or pattern, from a user's file or from another package.

No model is imported before it is made, so that the command line can list models at once.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from pathlib import Path
from typing import Any

from bnt.errors import BadInput
from bnt.models._catalog import CATALOG, Entry

# -- names ---------------------------------------------------------------------------------------------

GROUP = "bnt.models"  # of entry points
_OWN = re.compile(r"(?P<file>.+\.py):(?P<object>[A-Za-z_]\w*)$")


def list_models(pattern: str = "*", *, family: str | None = None) -> list[str]:
    """Return the names of models.

    Parameters
    ----------
    pattern : str
        Only names that match, with ``*`` and ``?`` as wildcards.
    family : {"network", "classical", "hybrid"}, optional
        Only models of one family.

    Examples
    --------
    >>> import bnt
    >>> bnt.list_models("bnt*")
    ['bnt', 'bnt-released']
    >>> bnt.list_models(family="hybrid")
    ['kernel-transformer']
    """
    return [e.name for e in CATALOG if fnmatchcase(e.name, pattern) and family in (None, e.family)]


PAPER = ("bnt", "vanilla", "san", "graphormer", "braingb", "brainnetcnn", "braingnn", "fbnetgen", "brainnetgnn", "dgm")
# Groups that commands take in place of names.
GROUPS: dict[str, Callable[[Entry], bool]] = {
    "all": lambda entry: True,
    "paper": lambda entry: entry.name.removesuffix("-released") in PAPER,
    "classical": lambda entry: entry.family == "classical",
    "series": lambda entry: entry.needs_series,
    "2023+": lambda entry: entry.year >= 2023 and not GROUPS["paper"](entry),
}


def expand_models(words: Sequence[str]) -> list[str]:
    """Expand names, groups and patterns to models, each model once.

    Parameters
    ----------
    words : sequence of str
        Names, patterns with ``*`` and ``?``, or groups: ``all``, ``paper`` (the models of the BNT paper),
        ``classical``, ``series`` (models that read time series), ``2023+`` (models published since). Options after a
        colon apply to every model of a group.

    Examples
    --------
    >>> from bnt.models import expand_models
    >>> expand_models(["bnt*", "svm:C=0.1"])
    ['bnt', 'bnt-released', 'svm:C=0.1']
    """
    found: list[str] = []
    for word in words:
        model, colon, options = split_word(word)
        if is_own(model) or (model not in GROUPS and not re.search(r"[*?]", model)):
            found += [word] if word not in found else []
            continue
        if model in GROUPS:
            names = [entry.name for entry in CATALOG if GROUPS[model](entry)]
        else:
            names = [entry.name for entry in CATALOG if fnmatchcase(entry.name, model)]
        if not names:
            raise BadInput(f"No model matches {model!r}: bnt models lists them.", "models")
        found += [name + colon + options for name in names if name + colon + options not in found]
    return found


def is_own(name: str) -> bool:
    """Whether a model's name is a file and an object in it, such as ``my_models.py:GCN``."""
    return _OWN.match(name) is not None


def own_parts(name: str) -> tuple[Path, str]:
    """Return the file and the object of a user's own model."""
    found = _OWN.match(name)
    if found is None:
        raise BadInput(f"{name!r} is not a model of your own: write my_models.py:MyModel.")
    return Path(found["file"]).expanduser().resolve(), found["object"]


def own_source(path: Path) -> bytes:
    """Read the file of a user's own model."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}): give the file of your model, as in my.py:GCN."
        ) from None


def source_digest(name: str) -> str | None:
    """Return the sha256 of a user's file, or of the version of another package; None for models of bnt.

    Nothing is run.
    """
    if is_own(name):
        return sha256(own_source(own_parts(name)[0])).hexdigest()
    point = None if in_catalog(name) else installed_models().get(name)
    return None if point is None else sha256(f"{package_of(point)} {point.value}".encode()).hexdigest()


def in_catalog(name: str) -> bool:
    """Whether a name is one of bnt's own models."""
    return any(entry.name == name for entry in CATALOG)


def installed_models() -> dict[str, EntryPoint]:
    """Return the models that other installed packages offer, by name; nothing of them is imported.

    They are the entry points of the group ``bnt.models``. A name of the catalogue stays bnt's; one that two packages
    offer is refused.
    """
    found: dict[str, EntryPoint] = {}
    for point in _entry_points(tuple(sys.path)):
        known = found.setdefault(point.name, point)
        if (known.value, package_of(known)) != (point.value, package_of(point)):
            raise BadInput(
                f"{package_of(known)} and {package_of(point)} both have a model {point.name!r}: uninstall one of them."
            )
    return found


@cache
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read the entry points of everything that is installed, which takes a while, once for a search path."""
    return tuple(entry_points(group=GROUP))


def package_of(point: EntryPoint) -> str:
    """Return the name and version of the package of an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


def split_word(word: str) -> tuple[str, str, str]:
    """Split ``my_models.py:GCN:hidden=8``, or ``bnt:n_clusters=4``, into the model, a colon, and its options.

    Examples
    --------
    >>> split_word("models/my.py:GCN:hidden=8")
    ('models/my.py:GCN', ':', 'hidden=8')
    >>> split_word("bnt:n_clusters=4")
    ('bnt', ':', 'n_clusters=4')
    """
    found = re.match(r"(.+?\.py:[A-Za-z_]\w*)(?:(:)(.*))?$", word)
    if found is None:
        return word.partition(":")
    return found[1], found[2] or "", found[3] or ""


def short_name(word: str) -> str:
    """Return a word of ``--models`` without the folder of its file, for tables."""
    return re.sub(r"^.*/(?=[^/]+\.py:)", "", word)


# -- from a name to a model ----------------------------------------------------------------------------

_GIVEN = ("self", "n_rois", "n_classes")


def find_entry(name: str) -> Entry:
    """Return the entry of a name of the catalogue, of ``file.py:object``, or of another package; else ``BadInput``.

    Examples
    --------
    >>> from bnt.models import find_entry
    >>> find_entry("svm").trains_in_epochs
    False
    """
    if is_own(name):
        from bnt.models._own import own_entry

        return own_entry(name)
    for entry in CATALOG:
        if entry.name == name:
            return entry
    others = installed_models()
    if name in others:
        from bnt.models._own import own_entry

        return own_entry(name)
    if name.endswith(".py"):
        raise BadInput(f"{name!r} is a file: also name the class or function in it, as in {name}:MyModel.")
    names = [*list_models(), *others]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise BadInput(f"Unknown model {name!r}; {hint} {', '.join(names)}; your own is my_models.py:MyModel.")


def model_options(name: str) -> dict[str, Any]:
    """Return the options of a model and their defaults, with the presets of the name.

    Examples
    --------
    >>> from bnt.models import model_options
    >>> model_options("bnt")["n_clusters"]
    10
    """
    entry = find_entry(name)
    parameters = inspect.signature(entry.constructor()).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.name not in _GIVEN}
    return {**defaults, **entry.presets}


def create_model(name: str, n_rois: int, n_classes: int = 2, **options: Any) -> Any:
    """Make a model by name.

    Parameters
    ----------
    name : str
        One of :func:`~bnt.models.list_models`, or ``my_models.py:MyModel``, a class of your own.
    n_rois : int
        V, the number of ROIs.
    n_classes : int
        Number of classes; 1 makes a regression model.
    **options
        The model's own options: see :func:`model_options`.

    Returns
    -------
    torch.nn.Module or a classical model
        A network is a :class:`bnt.nn.Network`: it maps ``(x, series=None, target=None, explain=False)`` to a
        :class:`bnt.nn.Output`.

    Examples
    --------
    >>> import bnt, torch
    >>> net = bnt.create_model("bnt", n_rois=20, n_classes=2, n_clusters=4)
    >>> net(torch.zeros(3, 20, 20)).logits.shape
    torch.Size([3, 2])
    """
    entry = find_entry(name)
    allowed = model_options(name)
    unknown = [option for option in options if option not in allowed]
    if unknown:
        near = get_close_matches(unknown[0], allowed, n=1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        listing = ", ".join(f"{k}={v!r}" for k, v in allowed.items()) or "no options"
        raise BadInput(f"Model {name!r} has no option {unknown[0]!r}; {hint} takes {listing}.")
    for option, value in options.items():
        check_value(f"Model {name!r}: {option}", allowed[option], value)
    if n_classes < 1:
        raise BadInput(f"n_classes is {n_classes}: give the number of classes, or 1 for regression.")
    return entry.constructor()(n_rois=n_rois, n_classes=n_classes, **{**entry.presets, **options})


def check_value(what: str, default: Any, value: Any) -> None:
    """Refuse a value of another type than the default's; a whole number may stand for a float."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(number, float) and not isfinite(number) for number in numbers):
        raise BadInput(f"{what} is {value!r}, it must be a finite number.")
    if value is None or default is None or default is inspect.Parameter.empty:
        return
    kind = type(default)
    fits = isinstance(value, kind) and isinstance(value, bool) == isinstance(default, bool)
    if not fits and not (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        raise BadInput(f"{what} is {value!r}, it must be {words.get(kind, kind.__name__)}, for example {default!r}.")


def count_parameters(name: str, n_rois: int, n_classes: int = 2, **options: Any) -> int:
    """Return the number of parameters of a network, frozen ones included, without allocating them.

    Examples
    --------
    >>> from bnt.models import count_parameters
    >>> count_parameters("bnt-released", n_rois=200)
    3980890
    """
    import torch

    with torch.device("meta"):
        model = create_model(name, n_rois, n_classes, **options)
    return sum(parameter.numel() for parameter in model.parameters())
