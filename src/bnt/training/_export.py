"""Export of a finished run as a model to share: weights, settings, a model card for a hub, and optionally ONNX."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt import __version__
from bnt.cohort import Cohort, load_cohort
from bnt.cohort._files import new_folder, sha256_of, without_folders, write_atomic
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput, in_one_line
from bnt.models import find_entry
from bnt.models._registry import is_own, short_name
from bnt.nn import kernels
from bnt.training._batches import Whole, standardised, window_of
from bnt.training._checkpoint import load_tensors, save_tensors
from bnt.training._config import RunConfig
from bnt.training._run import model_card
from bnt.training._task import Task
from bnt.training._trained import (
    CARD,
    CONFIG,
    FILES,
    FORMAT,
    WEIGHTS,
    RunResult,
    TrainedRun,
    hub_library,
    load_result,
    repository,
    shareable,
)

FEWEST = 5  # people of a site whose mean may leave the house
OF_SITES = ("means", "combat_shift", "combat_scale")  # arrays with one row of edges per site
KEPT = ("n", "n_scans", "test", "positive_class", "site_caution", "new_sites", "threshold", "n_parameters", "versions")
METRICS = {"auroc": "roc_auc", "accuracy": "accuracy", "mae": "mae", "mse": "mse", "r2": "r_squared", "r": "pearsonr"}


def export_run(
    run: str | Path,
    out: str | Path,
    *,
    licence: str = "",
    onnx: bool = False,
    overwrite: bool = False,
    model_file: str | Path | None = None,
) -> Path:
    """Write a finished run as a model to share; ``TrainedRun``, ``bnt predict`` and ``bnt validate`` open it.

    The folder holds ``config.json``, ``model.safetensors`` and the card ``README.md``, as model hubs expect them. It
    has no subject's id, scan, label or prediction, no path of this machine, no code and no pickle. The intervals of
    ``bnt predict`` and its comparison with the training people need these people, so an exported model has neither.

    Parameters
    ----------
    run : path
        A folder made by ``bnt train``.
    out : path
        The folder to write.
    licence : str
        Licence for the model card by its name on the hub, such as ``mit`` or ``cc-by-4.0``; none by default.
    onnx : bool
        Also write ``model.onnx``, for programs without torch; refused if ONNX lacks an operator of the network.
    overwrite : bool
        Replace an existing exported model.
    model_file : path, optional
        The Python file of your own model, if you have not trained with it on this machine. It is run to check the
        export.

    Examples
    --------
    >>> from bnt.training import TrainedRun, export_run
    >>> folder = export_run("run", "shared", overwrite=True)  # run: a folder made by bnt train
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    >>> TrainedRun(folder).config.model
    'bnt'
    """
    run, out = Path(run), Path(out)
    if (run / "estimator.json").is_file():
        raise BadInput(f"{run} is a saved estimator, which was never tested: export a run that bnt train made.")
    result = load_result(run)
    trained = TrainedRun(run, model_file=model_file)  # refuses code that the user did not name
    tensors, facts = load_tensors(run / "weights.safetensors")
    refuse_small_sites(result, trained, list(tensors))
    config = shareable(result.config, short_name(result.config.model))
    report = {name: result.report[name] for name in KEPT if name in result.report}
    with new_folder(out, overwrite=overwrite, marker=CONFIG) as work:
        save_tensors(work / WEIGHTS, tensors, {"members": facts.get("members", 1)})
        data = {
            "format": FORMAT,
            "library_name": "bnt",
            "model_type": config.model,
            "bnt_version": __version__,
            "config": config.to_dict(),
            "config_sha256": config.digest(),
            "weights_sha256": sha256_of(work / WEIGHTS),
            "threshold": result.report.get("threshold", 0.5),
            "report": report,
        }
        text = json.dumps(data, indent=2, default=float) + "\n"
        write_atomic(work / CONFIG, without_folders(text, result.config.cohort))
        in_epochs = find_entry(trained.config.model).trains_in_epochs
        write_atomic(work / CARD, card(config, result.report, licence, onnx, in_epochs))
        name = trained.config.model
        opened = TrainedRun(work, model_file=name.rpartition(":")[0] if is_own(name) else None)
        if onnx:
            write_onnx(opened, work / "model.onnx", run)
    return out


def refuse_small_sites(result: RunResult, trained: TrainedRun, names: list[str]) -> None:
    """Refuse weights that hold the mean of a site of a few people: that of one person is their connectome."""
    if not any(name.rpartition(".")[2] in OF_SITES for name in names):
        return
    where, config = result.folder, result.config
    try:
        cohort: Cohort = load_cohort(config.cohort)
    except BadInput as error:
        raise BadInput(
            f"The weights of {where} hold means of sites, and {config.cohort or 'the cohort'} is not there to count "
            "their people: put it back, or export a model without site means."
        ) from error
    part = dict.fromkeys(trained.splits().parts["train"])
    people = people_of(cohort.participants)
    pairs = {(site, who) for name, site, who in zip(cohort.ids, cohort.sites, people) if str(name) in part}
    small = {str(site): n for site, n in Counter(site for site, _ in pairs).items() if n < FEWEST}
    if small:
        site, n = next(iter(small.items()))
        raise BadInput(
            f"The weights of {where} hold the mean of each site, and site {site!r} has {n} training "
            f"{'person' if n == 1 else 'people'}, fewer than {FEWEST}: leave such sites out with bnt select and train "
            "again, or export a model without site means."
        )


def push(folder: Path, word: str, *, public: bool = False) -> str:
    """Upload an exported model and return its address; a repository that is made is private unless asked otherwise."""
    name, revision = repository(word)
    hub = hub_library()
    try:
        api = hub.HfApi()
        address = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            revision=revision,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Model exported by bnt",
        )
    except Exception as error:  # of the network, the hub, or the account: the library's own words say which
        why = in_one_line(error, besides=__file__)
        raise BadInput(
            f"{folder} cannot be uploaded to {word} ({why}): log in with `hf auth login`, or upload the folder by hand."
        ) from error
    return str(address)


# -- the card ----------------------------------------------------------------------------------------


def card(config: RunConfig, report: dict[str, Any], licence: str, onnx: bool, in_epochs: bool) -> str:
    """Return the card of a model hub: metadata as YAML, then the model card of the run and how to use the model."""
    head = "\n".join(
        ["---", *(f"{name}: {json.dumps(value)}" for name, value in metadata(config, report, licence).items()), "---"]
    )
    of_series = not is_own(config.model) and find_entry(config.model).needs_series
    reads = "connectomes and time series" if of_series else "connectomes"
    rois = f", {', '.join(config.rois[:3])} and so on" if config.rois else ""
    lines = [
        "## How to use it",
        "",
        "```sh",
        "pip install 'brain-network-transformer[hub]'",
        "bnt predict hf://OWNER/NAME cohort      # or the folder of these files",
        "bnt validate hf://OWNER/NAME cohort --out validation",
        "```",
        "",
        f"It reads {config.kind} {reads} of {config.n_rois} ROIs, in the order of the training data{rois} (`rois` in",
        "`config.json`). It predicts "
        + (
            f"`{config.label}`."
            if config.task.kind == "regression"
            else f"`{config.label}`: {', '.join(map(str, config.task.classes))}."
        ),
        *(
            [f"Its code is not here: it needs the file `{config.model.rpartition(':')[0]}`, given as `--model-file`."]
            if is_own(config.model)
            else []
        ),
        *(["`model.onnx` is the same model for ONNX Runtime, equal to 1e-5."] if onnx else []),
        "",
        "No person is in these files: no id, scan, label or prediction. So `bnt predict` gives no calibrated interval,",
        "and `bnt validate` cannot tell people whom the model was trained on: validate on people who were not.",
        "",
    ]
    return "\n".join([head, "", model_card(config, report, in_epochs).rstrip("\n"), "", *lines])


def metadata(config: RunConfig, report: dict[str, Any], licence: str) -> dict[str, Any]:
    """Return the metadata of a model hub's card; each value is written as JSON, which is YAML too."""
    name = f"{config.model}-{config.label}"
    task = {"type": "graph-ml", "name": f"{config.task.kind} of {config.label}"}
    data = {"type": "fmri-connectomes", "name": f"test set, {report['n']['test']} people", "split": "test"}
    found = [(key, report["test"].get(key)) for key in METRICS]
    metrics = [
        {"type": METRICS[key], "name": key, "value": round(float(value), 4)}
        for key, value in found
        if value is not None
    ]
    return {
        **({"license": licence} if licence else {}),
        "library_name": "bnt",
        "pipeline_tag": "graph-ml",
        "tags": ["neuroimaging", "fmri", "connectome", "brain-network", short_name(config.model)],
        "model-index": [{"name": name, "results": [{"task": task, "dataset": data, "metrics": metrics}]}],
    }


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
