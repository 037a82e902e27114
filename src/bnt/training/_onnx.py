"""Networks as ONNX, for programs without torch; every file is compared with torch before it is kept."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.nn import kernels
from bnt.training._batches import Whole, standardised, window_of
from bnt.training._task import Task
from bnt.training._trained import TrainedRun

TOLERANCE = 1e-5
NEEDED = ("onnx", "onnxscript", "onnxruntime")


class Predictor(nn.Module):
    """The networks of a run as one: connectomes (B, V, V), and series (B, T, V), to probabilities or scores (B, C)."""

    def __init__(self, networks: list[nn.Module], task: Task) -> None:
        super().__init__()
        self.networks, self.task = nn.ModuleList(networks).eval(), task

    def forward(self, connectomes: Tensor, series: Tensor | None = None) -> Tensor:
        """Return the mean of the members' predictions, as ``TrainedRun.predict`` does."""
        given = {} if series is None else {"series": series}
        logits = torch.stack([network(connectomes, **given).logits.float() for network in self.networks])
        if self.task.kind == "regression":
            return logits.mean(dim=0) * self.task.sd + self.task.mean
        return logits.softmax(dim=-1).mean(dim=0)


def examples(trained: TrainedRun, n: int, seed: int) -> tuple[Tensor, ...]:
    """Return what the network reads of ``n`` invented people: noise has no effect and no person in it."""
    rng = np.random.default_rng(seed)
    network = next(iter(trained.learner.networks()))
    window, n_rois = window_of(network), trained.config.n_rois
    n_volumes = window if isinstance(window, int) and window else 2 * n_rois
    scans = [standardised(rng.normal(size=(n_volumes, n_rois)) + rng.normal(size=(n_volumes, 1))) for _ in range(n)]
    matrices = np.stack([np.corrcoef(scan.T) for scan in scans]).astype(np.float32)
    matrices[:, np.arange(n_rois), np.arange(n_rois)] = trained.config.diagonal
    x = torch.from_numpy(matrices)
    if not window:
        return (x,)
    return x, (x.clone() if isinstance(window, str) else torch.from_numpy(np.stack(scans).astype(np.float32)))


def refuse(trained: TrainedRun, name: Path) -> None:
    """Refuse a run whose model is no network, or is more than its networks."""
    config = trained.config
    why = ""
    if not find_entry(config.model).trains_in_epochs:
        why = f"{config.model} is not a neural network"
    elif config.adjustments.changes_edges:
        why = "its edges are harmonised or rid of confounds before the network reads them"
    elif isinstance(window_of(next(iter(trained.learner.networks()))), Whole):
        why = f"{config.model} reads scans of any length"
    if why:
        raise BadInput(f"{name} cannot be written as ONNX, because {why}: export it without ONNX.", "onnx")


def write_onnx(trained: TrainedRun, file: Path, name: Path) -> None:
    """Write the networks of a run as one ONNX file; refuse what ONNX cannot express, or computes differently."""
    refuse(trained, name)
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise BadInput(
            f"ONNX needs the packages {', '.join(NEEDED)}: pip install 'brain-network-transformer[onnx]'."
        ) from error
    model = Predictor(list(trained.learner.networks()), trained.config.task)
    few, more = examples(trained, 3, seed=0), examples(trained, 7, seed=1)
    names = ["connectomes", "series"][: len(few)]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with kernels("stock"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = model(*more).numpy()
        try:
            people = torch.export.Dim("people")
            given: dict[str, Any] = {"dynamic_shapes": tuple({0: people} for _ in few), "external_data": False}
            torch.onnx.export(
                model, few, file, input_names=names, output_names=["predictions"], verbose=False, dynamo=True, **given
            )
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            found = session.run(None, {key: part.numpy() for key, part in zip(names, more)})[0]
        except Exception as error:  # of torch's exporter, or of the runtime: it says which operator
            why = _reason(error, trained.config.model)
            raise BadInput(
                f"{name} cannot be written as ONNX, because {why}: export it without ONNX.", "onnx"
            ) from error
    scale = max(1.0, float(np.abs(wanted).max()))
    off = float(np.abs(found - wanted).max()) / scale
    if not off <= TOLERANCE:
        raise BadInput(
            f"{name} cannot be written as ONNX, because ONNX Runtime answers differently, by {off:.1e}: export it "
            "without ONNX.",
            "onnx",
        )


def _reason(error: BaseException, model: str) -> str:
    """Return why torch's exporter, or the runtime, cannot take a network: the operator, or what the network does."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    text = " ".join(str(one) for one in reversed(chain))
    found = re.search(r"No ONNX function found for <OpOverload\(op='(?:aten|prims)\.(\w+)", text)
    if found is None:
        found = re.search(r"aten[.:]+(\w*(?:eigh|rand|sort)\w*)", text)
    if found:
        return f"torch has no translation of the operator {found[1]}, which {model} uses"
    if "data-dependent" in text or "dimensions" in text or "Constraints violated" in text:
        return f"{model} makes decisions in Python that an ONNX file cannot hold"
    return f"torch cannot express {model} in it ({' '.join(str(chain[-1]).split())[:120]})"
