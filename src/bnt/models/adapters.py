"""A user's own network or scikit-learn estimator, behind the interface that the models of the catalogue have."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from torch import Tensor, nn

from bnt.errors import BadInput, in_one_line
from bnt.models.inputs import Inputs
from bnt.nn import Output


class OwnNetwork(nn.Module):
    """A torch module that maps connectomes (B, V, V) to logits (B, C), or to an Output with them.

    It is given ``series``, ``target`` and ``explain`` where its ``forward`` names them.

    Parameters
    ----------
    model : Module
    n_rois, n_classes : int
        V and C.
    name : str
        What to call it in sentences.
    """

    def __init__(self, model: Any, n_rois: int, n_classes: int, name: str) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise BadInput(f"{name} made a {type(model).__name__}: it takes n_rois, so it must make a torch module.")
        self.model, self.n_rois, self.n_classes, self.name = model, n_rois, n_classes, name
        self.n_volumes = int(getattr(model, "n_volumes", 0))
        parameters = inspect.signature(model.forward).parameters.values()
        every = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.takes = {n for n in ("series", "target", "explain") if every or any(p.name == n for p in parameters)}

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Call the module and check what it returns."""
        if x.shape[-2:] != (self.n_rois, self.n_rois):
            raise BadInput(f"{self.name} was made for {self.n_rois} ROIs and was given {tuple(x.shape)}.")
        given = {"series": series, "target": target, "explain": explain}
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
                f"be {wanted}, one column {'for the score' if self.n_classes == 1 else 'a class'}."
            )
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
        """Fit on the edges of the training part."""
        try:
            self.estimator.fit(inputs.edges, y)
        except ValueError as error:  # what scikit-learn says of data that it cannot learn from
            raise BadInput(f"{self.name} could not be fitted: {in_one_line(error, besides=__file__)}.") from error
        return self

    def predict(self, inputs: Inputs) -> np.ndarray:
        """Return scores."""
        return np.asarray(self.estimator.predict(inputs.edges))

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        """Return probabilities, one column a class."""
        found = np.asarray(self.estimator.predict_proba(inputs.edges))
        if found.shape != (len(inputs), self.n_classes):
            raise BadInput(
                f"{self.name} gave probabilities {found.shape}: they must be {(len(inputs), self.n_classes)}."
            )
        return found

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return nothing: what scikit-learn learned could be kept as a pickle only."""
        return {}
