"""From a name to a model."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from bnt.errors import BadInput
from bnt.models._catalog import CATALOG, Entry, list_models
from bnt.models._own import is_own, own_constructor, own_entry

_GIVEN = ("self", "n_rois", "n_classes")


def find_entry(name: str) -> Entry:
    """Return the catalogue's row for a name, or that of ``file.py:object``, or say which names there are."""
    if is_own(name):
        return own_entry(name)
    for entry in CATALOG:
        if entry.name == name:
            return entry
    near = get_close_matches(name, list_models(), n=1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise BadInput(f"There is no model {name!r}; {hint} {', '.join(list_models())}; your own is my_models.py:MyModel.")


def constructor(entry: Entry) -> Any:
    """Import and return the class or function behind an entry."""
    if is_own(entry.name):
        return own_constructor(entry.name)
    module, _, attribute = entry.home.partition(":")
    return getattr(import_module(module), attribute)


def model_options(name: str) -> dict[str, Any]:
    """Return the options of a model and their defaults, presets of the name included."""
    entry = find_entry(name)
    parameters = inspect.signature(constructor(entry)).parameters.values()
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
        A network maps ``(x, series=None, target=None, explain=False)`` to a :class:`bnt.nn.Output`.

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
    return constructor(entry)(n_rois=n_rois, n_classes=n_classes, **{**entry.presets, **options})


def check_value(what: str, default: Any, value: Any) -> None:
    """Refuse a value of another type than the default's; a whole number may stand for a float."""
    if value is None or default is None or default is inspect.Parameter.empty:
        return
    kind = type(default)
    fits = isinstance(value, kind) and isinstance(value, bool) == isinstance(default, bool)
    if not fits and not (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        raise BadInput(f"{what} is {value!r}, it must be {words.get(kind, kind.__name__)}, for example {default!r}.")


def count_parameters(name: str, n_rois: int, n_classes: int = 2, **options: Any) -> int:
    """Return the number of parameters of a network, frozen ones included, without allocating them."""
    import torch

    with torch.device("meta"):
        model = create_model(name, n_rois, n_classes, **options)
    return sum(parameter.numel() for parameter in model.parameters())
