"""A job: one run of a study as plain data for any process on any machine; and estimates of its time."""

from __future__ import annotations

import gc
import json
import os
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bnt.cohort import Cohort
from bnt.cohort._files import InUse, held, write_atomic
from bnt.errors import BadInput, in_one_line, lacks_memory
from bnt.models import count_parameters, create_model, find_entry, model_options
from bnt.models.classical._subject_matrices import DISK_GB
from bnt.splits import Split
from bnt.splits._split import PARTS
from bnt.training._config import RunConfig, options_for
from bnt.training._recipe import Adjustments, Recipe

REPEAT = "repeat the command to resume."  # ends the reason of an accident: the same job may well succeed
ELSEWHERE = "another command works on it."  # the reason of a job that was left alone: no failure
LOOK_SECONDS = 1.0  # another command may hold a lock for a moment, to see whether anybody does
BEYOND_STEPS = 1.15  # validation and reading beside the steps themselves


@dataclass(frozen=True)
class Variant:
    """A named model with options, recipe and adjustments (harmonisation, confounds); ``atlas`` selects another atlas of
    the cohort.

    Examples
    --------
    >>> from bnt.studies import Variant
    >>> Variant("bnt-4", "bnt", {"n_clusters": 4}).options
    {'n_clusters': 4}
    """

    name: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    recipe_name: str = "default"
    recipe: Recipe = field(default_factory=Recipe)
    atlas: str = ""
    adjustments: Adjustments = field(default_factory=Adjustments)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Variant:
        """Undo :func:`dataclasses.asdict`; fields that an earlier version did not have get their defaults."""
        adjustments = Adjustments(**data.get("adjustments", {}))
        return cls(**{**data, "recipe": Recipe(**data["recipe"]), "adjustments": adjustments})


def fit_variants(
    cohort: Cohort, variants: Sequence[Variant], n_train: int | None = None
) -> tuple[list[Variant], dict[str, str], dict[str, str]]:
    """Return the variants to run, why others cannot be, and what was changed to fit the cohort, by name.

    Networks are made without memory, so that this costs nothing: a model that needs series, or a number of ROIs that
    no number of heads divides, is found here and not after hours. With ``n_train``, the size of the smallest training
    set, so is a batch that it does not fill.
    """
    kept, reasons, changed = [], {}, {}
    for asked in variants:
        entry = find_entry(asked.model)
        if entry.needs_series and cohort.timeseries is None:
            reasons[asked.name] = "the cohort has no time series"
            continue
        variant, words = fitted(cohort, asked)
        if entry.trains_in_epochs:
            if n_train is not None and variant.recipe.steps_per_epoch(n_train) == 0:
                batch = variant.recipe.batch_size
                reasons[asked.name] = f"{n_train} training subjects do not fill one batch of {batch}: lower batch_size"
                continue
            try:
                options = options_for(cohort, variant.model, variant.options)
                count_parameters(variant.model, cohort.n_rois, 2, **options)
            except BadInput as error:
                reasons[asked.name] = str(error).rstrip(".")
                continue
        if words:
            changed[variant.name] = words
        kept.append(variant)
    return kept, reasons, changed


def say_fitted(reasons: dict[str, str], changed: dict[str, str], tell: Callable[[str], Any]) -> None:
    """Say which variants were changed to fit the cohort and which are skipped, each reason once."""
    for heading, found in (("Changed", changed), ("Skipped", reasons)):
        for reason in dict.fromkeys(found.values()):
            tell(f"{heading}: {', '.join(name for name, why in found.items() if why == reason)}: {reason}.")


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
            continue  # with fewer heads it may fit; what fits with none is said by fit_variants
        changed |= own
        break
    if not changed:
        return variant, ""
    words = ", ".join(f"{name}={value} in place of {defaults[name]}" for name, value in changed.items())
    return replace(variant, options={**variant.options, **changed}), f"{words}, to fit {cohort.n_rois} ROIs"


@dataclass(frozen=True)
class Job:
    """One run: a variant on one split with one seed.

    Attributes
    ----------
    cohort : str
        The cohort's folder.
    folder : str
        The run's folder.
    variant : Variant
    label, task : str
    split : Split
        By participant id, so that a job means the same wherever it runs.
    seed, threads, device
    data_sha256 : str
        Of the study's data: a cohort that was written again meanwhile is refused.
    draws : int
        Where it is not 0, the model is fitted this many times with permuted labels, and only the scores are kept.
    cache_gb : float
        Largest size of what is kept beside the cohort; 0 keeps nothing there.
    memory_gb : float, optional
        About how much memory a classical model may take; by default half of the machine's.
    """

    cohort: str
    folder: str
    variant: Variant
    label: str
    split: Split
    task: str = "auto"
    positive: str | None = None
    seed: int = 0
    threads: int = 1
    device: str = "cpu"
    data_sha256: str = ""
    draws: int = 0
    cache_gb: float = DISK_GB
    memory_gb: float | None = None

    @property
    def name(self) -> str:
        """The run's folder name: variant, split and seed."""
        return Path(self.folder).name

    def to_json(self) -> str:
        """Return the job as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Undo :meth:`to_json`."""
        data = json.loads(text)
        variant = Variant.from_dict(data.pop("variant"))
        split = data.pop("split")
        split |= {part: tuple(split[part]) for part in PARTS}
        return Job(variant=variant, split=Split(**split), **data)


def configure(job: Job, cohort: Cohort) -> RunConfig:
    """Return the whole configuration that a job means on this cohort."""
    from bnt.training._config import describe

    return describe(
        cohort,
        job.label,
        job.split,
        model=job.variant.model,
        options=job.variant.options,
        recipe=job.variant.recipe,
        recipe_name=job.variant.recipe_name,
        seed=job.seed,
        threads=job.threads,
        device=job.device,
        task=job.task,
        positive=job.positive,
        adjustments=job.variant.adjustments,
    )


def run_job(job: Job) -> dict[str, Any]:
    """Carry a job out, or resume it; return the run's report (nothing of draws with permuted labels).

    The libraries' threads are limited to the job's own, so that the numbers do not depend on which
    process of which machine carries it out. What earlier jobs of this process have computed is used again.
    """
    from threadpoolctl import threadpool_limits

    from bnt.models.classical._inputs import memory_bound
    from bnt.models.classical._subject_matrices import sharing
    from bnt.studies._chance import run_draws
    from bnt.training._config import data_digest
    from bnt.training._run import train_run

    with locked(job), threadpool_limits(job.threads), memory_bound(job.memory_gb), sharing(job.cache_gb):
        cohort = opened(Path(job.cohort))
        if job.data_sha256 not in ("", data_digest(cohort, job.label)):
            raise BadInput(f"{job.cohort} has changed since the study was started: restore it, and repeat the command.")
        if job.draws:
            run_draws(job, cohort)
            return {}
        return train_run(cohort, job.split, configure(job, cohort), job.folder, resume=True).report


_opened: dict[Path, tuple[list[tuple[Any, ...]], Cohort]] = {}


def opened(folder: Path) -> Cohort:
    """Return a cohort: as this process has opened it before, unless one of its files has been touched since."""
    from bnt.cohort import load_cohort

    found = ((entry.name, entry.stat()) for entry in os.scandir(folder) if entry.is_file()) if folder.is_dir() else ()
    signs = sorted((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found)
    if folder not in _opened or _opened[folder][0] != signs:
        _opened[folder] = signs, load_cohort(folder)
    return _opened[folder][1]


@contextmanager
def as_if_alone(job: Job) -> Iterator[None]:
    """Let a job find the libraries as a new process does, whatever jobs its process has carried out before."""
    import torch

    torch.manual_seed(torch.Generator().initial_seed())  # torch's own, before anyone sets one
    np.random.seed(job.seed % 2**32)  # noqa: NPY002 - users' code may draw from it
    random.seed(job.seed)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is this job's
    with warnings.catch_warnings():  # which also forgets what was warned of before
        warnings.formatwarning = lambda message, *_, **__: f"{job.name}: {' '.join(str(message).split())}\n"
        yield
    gc.collect()


def lock_of(job: Job) -> Path:
    """Return the file that says who works on a job: beside the runs, as a run's folder holds results only."""
    return Path(job.folder).parent.parent / "locks" / f"{job.name}.lock"


def locked(job: Job) -> AbstractContextManager[None]:
    """Hold a job's lock while the block runs; InUse where another process works on it."""
    return held(lock_of(job), wait=LOOK_SECONDS, of=Path(job.folder))


def attempt(job: Job, work: Callable[[Job], Any] = run_job) -> str:
    """Carry a job out and return why it failed, in one sentence; an empty text where it did not.

    Where another process works on it, that is ``ELSEWHERE``.
    """
    try:
        with as_if_alone(job):
            work(job)
        (Path(job.folder) / "traceback.txt").unlink(missing_ok=True)
    except InUse:
        return ELSEWHERE
    except Exception as error:  # noqa: BLE001 - one failed job must not stop the others; it is reported
        return _reason(job, error)
    return ""


def _reason(job: Job, error: Exception) -> str:
    """Return why a job failed, in one sentence."""
    from safetensors import SafetensorError

    if lacks_memory(error):
        return "there is not enough memory: run fewer jobs at a time, or a smaller model."
    if isinstance(error, BadInput):
        if isinstance(error.__cause__, OSError | SafetensorError):
            return f"{error} Then {REPEAT}"
        return str(error) if error.__cause__ is None else str(error).rstrip(".") + _kept(job)
    if isinstance(error, OSError):
        return f"{in_one_line(error)}{_kept(job)}: {REPEAT}"
    return in_one_line(error) + _kept(job)


def _kept(job: Job) -> str:
    """Write how the error came about into the run's folder, where there is one, and return a word about it."""
    folder = Path(job.folder)
    if not folder.is_dir():
        return ""
    try:
        write_atomic(folder / "traceback.txt", traceback.format_exc())
    except OSError:
        return ""
    return f"; all of it is in {folder / 'traceback.txt'}"


def step_seconds(
    cohort: Cohort,
    variant: Variant,
    n: int | None = None,
    *,
    threads: int = 1,
    device: str = "cpu",
    at_least: int = 1,
    at_most: int = 1,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the median time of a training step (forward, backward, Adam) on a cohort, after one to warm up.

    Parameters
    ----------
    n : int, optional
        Subjects per batch, the first of the cohort; by default as many as the recipe's.
    threads : int
        CPU threads.
    at_least, at_most : int
        How many steps are measured: after ``at_least`` of them no more than ``seconds`` are spent.
    clock : callable
        ``time.process_time`` does not count what other processes take of the machine.
    """
    import torch

    from bnt.nn._kernels import wide_products
    from bnt.nn._network import Adam
    from bnt.training._batches import Batches, window_of

    def now() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # steps are queued there: only this waits for them
        return clock()

    n = n or min(variant.recipe.batch_size, len(cohort))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        options = options_for(cohort, variant.model, variant.options)
        model = create_model(variant.model, cohort.n_rois, 2, **options).to(device)
        target = torch.nn.functional.one_hot(torch.arange(n) % 2, 2).float()
        batches = Batches(cohort, np.arange(n), target, window=window_of(model), device=device)
        prepare = getattr(model, "prepare", None)
        if prepare is not None:
            prepare(batch.x for batch in batches.in_order())
        batch = next(batches.in_order(n))
        optimiser = Adam(model.parameters(), lr=1e-4)
        model.train()
        taken: list[float] = []  # the first is to warm up
        while len(taken) <= at_least or (len(taken) <= at_most and sum(taken[1:]) < seconds):
            started = now()
            optimiser.zero_grad(set_to_none=True)
            with wide_products():
                output = model(batch.x, **batch.of_series, target=batch.target)
                loss = -(batch.target * output.logits.log_softmax(1)).sum()
                if output.loss is not None:
                    loss = loss + output.loss
                loss.backward()
            optimiser.step()
            taken.append(now() - started)
        return float(np.median(taken[1:]))
    finally:
        torch.set_num_threads(before)


def most_epochs(recipe: Recipe, n_train: int) -> int:
    """Return how many epochs are made at most on ``n_train`` subjects: small cohorts need more for ``min_steps``."""
    return recipe.for_steps(recipe.steps_per_epoch(n_train)).epochs


def most_steps(recipe: Recipe, n_train: int, n_val: int = 0) -> int:
    """Return how many steps a run takes at most: members, and each again with the validation set where refitted."""
    epochs = most_epochs(recipe, n_train)
    selected = 0 if recipe.refit and recipe.select == "last" else epochs * recipe.steps_per_epoch(n_train)
    again = epochs * recipe.steps_per_epoch(n_train + n_val) if recipe.refit else 0
    return recipe.n_members * (selected + again)


def epochs_in_words(numbers: Iterable[int]) -> str:
    """Return ``1 epoch``, ``12 epochs``, or ``12 to 66 epochs`` where numbers differ."""
    found = sorted(set(numbers))
    if found[0] != found[-1]:
        return f"{found[0]} to {found[-1]} epochs"
    return f"{found[0]} epoch{'s' * (found[0] != 1)}"
