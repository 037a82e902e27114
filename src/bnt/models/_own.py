"""Models from outside bnt: a user's file (``my_models.py:GCN``) or a model of another installed package.

What takes ``n_rois`` and ``n_classes`` makes a network; anything else makes a scikit-learn estimator. The file is
run as Python code, once per process; a run records its sha256. Whoever names a file has it run; a folder that names
one, which may come from others, does not (:func:`permitted`). A package is code that the user installed: it is
imported when one of its models is named.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bnt.cohort._files import held, state_folder, write_atomic
from bnt.errors import BadInput, in_one_line, lacks_memory
from bnt.models._catalog import Entry
from bnt.models._registry import installed_models, is_own, own_parts, own_source, package_of, short_name, source_digest
from bnt.models.classical._inputs import Inputs
from bnt.nn import Network, Output


def own_entry(name: str) -> Entry:
    """Return a row like those of the catalogue; the file is run, or the package imported."""
    made = own_object(name)
    return Entry(
        name=":".join(map(str, own_parts(name))) if is_own(name) else name,
        home="",
        summary=(inspect.getdoc(made) or "no description").splitlines()[0],
        paper="your own" if is_own(name) else package_of(installed_models()[name]),
        family="network" if _makes_network(made) else "classical",
        needs_series=bool(getattr(made, "needs_series", False)),
        training=getattr(made, "training", {}),
        source_sha256=source_digest(name),
    )


def own_constructor(name: str) -> Callable[..., Any]:
    """Return what makes the model from ``n_rois``, ``n_classes`` and its own options."""
    made = own_object(name)
    shown = short_name(name)

    @wraps(made)
    def make(n_rois: int, n_classes: int, **options: Any) -> Any:
        network = _makes_network(made)
        given = {"n_rois": n_rois, "n_classes": n_classes} if network else {}
        with reported(f"{shown} cannot be made"):
            found = made(**given, **options)
        return OwnNetwork(found, n_rois, n_classes, shown) if network else OwnEstimator(found, n_classes, shown)

    return make


def own_object(name: str) -> Any:
    """Run the file, once, and return the class or function that is named; or import it from its package."""
    if not is_own(name):
        return _of_package(name)
    path, attribute = own_parts(name)
    module = _module(path, own_source(path))
    made = getattr(module, attribute, None)
    if not callable(made):
        there = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
        raise BadInput(f"{path} has no class or function {attribute!r}; it has {', '.join(there) or 'none'}.")
    return made


def _of_package(name: str) -> Any:
    """Import what an entry point names."""
    point = installed_models()[name]
    try:
        made = point.load()
    except Exception as error:  # whatever the package raises is reported as such
        raise BadInput(
            f"Model {name!r} of {package_of(point)} cannot be imported: {in_one_line(error, besides=__file__)}."
        ) from error
    if not callable(made):
        raise BadInput(
            f"Model {name!r} of {package_of(point)} is {point.value}, which is neither a class nor a function."
        )
    return made


@cache
def _module(path: Path, source: bytes) -> ModuleType:
    """Run what was read of a file as a module of its own; files beside it can be imported by it."""
    name = f"bnt_own_{path.stem}_{sha256(source).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file.")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader, which would run a .pyc that lies beside the file.
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadInput(f"{path} cannot be run: {in_one_line(error, besides=__file__)}.") from error
    return module


# -- whose code is run ---------------------------------------------------------------------------------


def permitted(name: str, digest: str | None, folder: Path, model_file: str | Path | None = None) -> str:
    """Return the model that a folder names, if its file may be run; nothing is run here.

    Parameters
    ----------
    name, digest : str
        The model and the sha256 of its file, as the folder says: whoever made the folder chose both.
    model_file : path, optional
        The file that the user names; without it, it must be one that they trained with here, outside the folder.
    """
    if not is_own(name):
        if model_file is not None:
            raise BadInput(f"{folder} holds the model {name}, which is not a model from a file.", "model_file")
        if digest is not None and source_digest(name) != digest:
            raise BadInput(
                f"{folder} was trained with {name} of a package, or of a version of it, that is not installed here: "
                "install that one, or train again."
            )
        return name
    if model_file is not None:
        name = f"{model_file}:{own_parts(name)[1]}"
        if source_digest(name) != digest:
            raise BadInput(f"{model_file} is not the file that {folder} was trained with: its sha256 differs.")
        return name
    path, _ = own_parts(name)
    if digest not in _remembered().get(str(path), []) or path.is_relative_to(folder.resolve()):
        raise BadInput(
            f"The model of {folder} is code in {path}, which you have not trained with here, so it is not run: read it "
            "and, if you trust it, give its path as model_file.",
            "model_file",
        )
    if source_digest(name) != digest:
        raise BadInput(f"{path} has changed since {folder} was trained with it: put the old file back, or train again.")
    return name


def remember(name: str, digest: str | None) -> None:
    """Keep, outside of any run, that the user trains with a file of their own."""
    if not is_own(name) or digest is None:
        return
    path = str(own_parts(name)[0])
    if digest in _remembered().get(path, []):
        return
    file = _memory()
    try:
        with held(file.with_suffix(".lock")):
            known = _remembered()
            known[path] = [*known.get(path, []), digest]
            write_atomic(file, json.dumps(known, indent=2) + "\n")
    except (BadInput, OSError) as error:
        warnings.warn(f"{path} is not remembered ({error}): bnt predict will ask for --model-file.", stacklevel=2)


def _memory() -> Path:
    """Return the file of what was trained with, in the user's own folder."""
    return state_folder() / "own_models.json"


def _remembered() -> dict[str, list[str]]:
    """Return the sha256 of every file that was trained with, by path; nothing where that cannot be read."""
    try:
        found = json.loads(_memory().read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {path: digests for path, digests in found.items() if isinstance(digests, list)}


def _makes_network(made: Any) -> bool:
    """Whether it takes the two numbers that a network needs; a torch module must."""
    try:
        takes = set(inspect.signature(made).parameters)
    except (TypeError, ValueError):
        takes = set()
    needed = {"n_rois", "n_classes"}
    if needed <= takes:
        return True
    if inspect.isclass(made) and any(base.__module__.startswith("torch.") for base in made.__mro__):
        raise BadInput(
            f"{made.__name__} is a torch module whose constructor takes {', '.join(sorted(takes)) or 'nothing'}: "
            "it must take n_rois and n_classes, and its options with defaults."
        )
    return False


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Report whatever the user's code raises as such, in one sentence."""
    try:
        yield
    except Exception as error:
        if isinstance(error, BadInput) or lacks_memory(error):
            raise
        raise BadInput(f"{what}: {in_one_line(error, besides=__file__)}.") from error


class OwnNetwork(Network):
    """A torch module that maps connectomes (B, V, V) to logits (B, C), or to an Output with them.

    It is given ``series``, ``target``, ``explain`` and ``lengths`` where its ``forward`` names them.

    Parameters
    ----------
    n_rois, n_classes : int
        V and C.
    name : str
        What to call it in sentences.
    """

    def __init__(self, model: Any, n_rois: int, n_classes: int, name: str) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise BadInput(f"{name} made a {type(model).__name__}: it takes n_rois, so it must make a torch module.")
        if any(is_lazy(parameter) for parameter in model.parameters()):
            raise BadInput(f"{name} has layers without a size (Lazy...): give their sizes, from n_rois.")
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise BadInput(f"{name} has no parameters to train: a network needs some; a rule can be an estimator.")
        self.model, self.n_rois, self.n_classes, self.name = model, n_rois, n_classes, name
        self.n_volumes = int(getattr(model, "n_volumes", 0))
        self.whole_series, self.crop = bool(getattr(model, "whole_series", False)), int(getattr(model, "crop", 0))
        parameters = inspect.signature(model.forward).parameters.values()
        reads = getattr(model, "needs_series", False) or any(
            p.name == "series" and p.default is p.empty for p in parameters
        )
        if reads and not self.n_volumes and not self.whole_series:
            raise BadInput(
                f"{name} reads time series: set needs_series = True, and keep an option n_volumes as self.n_volumes or "
                "set whole_series = True."
            )
        every = any(p.kind is p.VAR_KEYWORD for p in parameters)
        takable = ("series", "target", "explain", "lengths")
        self.takes = {n for n in takable if every or any(p.name == n for p in parameters)}

    def forward(
        self,
        x: Tensor,
        series: Tensor | None = None,
        target: Tensor | None = None,
        explain: bool = False,
        lengths: Tensor | None = None,
    ) -> Output:
        """Call the module and check what it returns."""
        if x.shape[-2:] != (self.n_rois, self.n_rois):
            raise BadInput(f"{self.name} was made for {self.n_rois} ROIs and was given {tuple(x.shape)}.")
        given = {"series": series, "target": target, "explain": explain, "lengths": lengths}
        with reported(f"{self.name} fails on connectomes {tuple(x.shape)}"):
            found = self.model(x, **{name: value for name, value in given.items() if name in self.takes})
        output = Output(found) if isinstance(found, Tensor) else found
        wanted = (len(x), self.n_classes)
        if not isinstance(getattr(output, "logits", None), Tensor):
            raise BadInput(
                f"{self.name} returned a {type(found).__name__}: return logits {wanted}, or a bnt.nn.Output."
            )
        if output.logits.shape != wanted:
            raise BadInput(
                f"{self.name} returned logits of shape {tuple(output.logits.shape)} for {len(x)} subjects: they must "
                f"be {wanted}, one column {'for the score' if self.n_classes == 1 else 'per class'}."
            )
        if not self.training and not torch.isfinite(output.logits).all():  # in training the loss says so
            raise BadInput(
                f"{self.name} returned logits that are not finite in evaluation: look for division by zero, logarithms "
                "and what differs between training and evaluation."
            )
        if self.training and torch.is_grad_enabled() and not output.logits.requires_grad:
            raise BadInput(
                f"{self.name} returned logits that no parameter can be trained by: leave out detach, no_grad, argmax, "
                "round and numpy on the way to them."
            )
        if output.loss is not None and (not isinstance(output.loss, Tensor) or output.loss.ndim):
            raise BadInput(f"{self.name} returned a loss that is not one number in a tensor: take its mean or sum.")
        return output


class OwnEstimator:
    """A scikit-learn classifier or regressor on edge vectors (n, V(V-1)/2), in nilearn's order.

    It is fitted and tested like any other model; it is not kept, because that would need a pickle.

    Parameters
    ----------
    estimator
        With ``fit`` and ``predict_proba``, or ``predict`` for a score.
    n_classes : int
        1 for a score.
    name : str
        What to call it in sentences.
    """

    def __init__(self, estimator: Any, n_classes: int, name: str) -> None:
        needed = "predict" if n_classes == 1 else "predict_proba"
        for method in ("fit", needed):
            if not hasattr(estimator, method):
                hint = "; CalibratedClassifierCV of scikit-learn adds it" if method == "predict_proba" else ""
                raise BadInput(f"{name} made a {type(estimator).__name__}, which has no {method}{hint}.")
        self.estimator, self.n_classes, self.name = estimator, n_classes, name

    @property
    def seed(self) -> int | None:
        """The run's seed, given to every ``random_state`` that is unset."""
        return self._seed

    @seed.setter
    def seed(self, value: int) -> None:
        self._seed = value
        if hasattr(self.estimator, "get_params"):
            unset = [k for k, v in self.estimator.get_params().items() if k.endswith("random_state") and v is None]
            self.estimator.set_params(**dict.fromkeys(unset, value))

    _seed: int | None = None

    def fit(self, inputs: Inputs, y: np.ndarray) -> OwnEstimator:
        """Fit on the edges of the training set."""
        with reported(f"{self.name} could not be fitted"):
            self.estimator.fit(inputs.edges, y)
        return self

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return scores."""
        with reported(f"{self.name} cannot predict"):
            found = np.asarray(self.estimator.predict(inputs.edges), dtype=np.float64)
        if found.shape not in ((len(inputs),), (len(inputs), 1)):
            raise BadInput(f"{self.name} gave scores {found.shape}: they must be ({len(inputs)},).")
        if not np.isfinite(found).all():
            raise BadInput(f"{self.name} gave {found[~np.isfinite(found)][0]} as a score: it must be a finite number.")
        return found

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return probabilities, one column per class."""
        with reported(f"{self.name} cannot predict"):
            found = np.asarray(self.estimator.predict_proba(inputs.edges), dtype=np.float64)
        if found.shape != (len(inputs), self.n_classes):
            raise BadInput(
                f"{self.name} gave probabilities {found.shape}: they must be {(len(inputs), self.n_classes)}."
            )
        wrong = ~((found >= 0).all(axis=1) & np.isclose(found.sum(axis=1), 1, atol=1e-3))
        if wrong.any():
            raise BadInput(
                f"{self.name} gave probabilities {found[wrong][0].tolist()}: they must be at least 0 and sum to 1."
            )
        return found

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return nothing: what scikit-learn learned could be kept as a pickle only."""
        return {}
