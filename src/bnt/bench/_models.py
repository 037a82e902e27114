"""Benchmark of a training step of every network, relative to ``bnt``: time, memory and parameters.

Each model lives in a process of its own, so that its peak memory is its own. Its steps (forward, backward,
Adam) take turns with steps of ``bnt`` in another process, and medians are compared: what else runs on the
machine slows both alike. ``python -m bnt.bench._models MODEL ROIS BATCH THREADS`` is such a process.

Against another package (:data:`RIVALS`) its own model takes the place of ``bnt``, on the same data and with the same
optimiser.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt._words import say
from bnt.bench import BenchSettings, peak_memory
from bnt.errors import BadInput
from bnt.models import create_model, find_entry, list_models, model_options
from bnt.nn._kernels import wide_products
from bnt.training._loop import reuse_freed_memory

ROIS, BATCHES = (200, 360), (16, 64)
MOST_ROUNDS, SECONDS = 9, 20.0  # quick models get more rounds than were asked for, up to these
VOLUMES = 100
YARDSTICK = "bnt"
# Our models that a package has too, by what it calls them and what it reads: series, correlations (x), or both.
RIVALS = {
    "ml4fmri": {
        "meanmlp": ("meanMLP", ("series",)),
        "bolt": ("BolT", ("series",)),
        "bnt-released": ("BNT", ("x",)),
        "brainnetcnn": ("BrainNetCNN", ("x",)),
        "fbnetgen-released": ("FBNetGen", ("series", "x")),
    }
}
INSTALL = {"ml4fmri": "pip install --no-deps ml4fmri==1.1.0"}


def models(settings: BenchSettings) -> list[dict[str, Any]]:
    """Return one row per model, number of ROIs and batch size.

    ``rois``, ``subjects`` and ``models`` of the settings choose the number of ROIs, the batch size and the models;
    ``against`` a package that is compared with ours.
    """
    rois = ROIS if settings.rois is None else (settings.rois,)
    batches = BATCHES if settings.subjects is None else (settings.subjects,)
    threads, repeats = settings.threads, settings.repeats
    if settings.against is not None:
        names = shared_models(settings.against, settings.models)
        return [duel(n, settings.against, v, b, threads, repeats) for v in rois for b in batches for n in names]
    names = chosen_models(settings.models)
    return [row for v in rois for b in batches for row in compare(names, v, b, threads, repeats)]


def chosen_models(asked: Iterable[str] = ()) -> list[str]:
    """Return the names to measure, ``bnt`` first: those asked for, or every network but the published variants.

    The variants ending in -released do the same work but for ``bnt-released``, which has a hidden layer of its own.
    """
    names = list(asked) or [
        n for n in list_models(family="network") if n == "bnt-released" or not n.endswith("-released")
    ]
    for name in names:
        if not find_entry(name).trains_in_epochs:
            raise BadInput(f"{name!r} is not trained in steps: choose networks of bnt models.")
    return [YARDSTICK, *(name for name in names if name != YARDSTICK)]


def shared_models(package: str, asked: Iterable[str] = ()) -> list[str]:
    """Return which of our models a package has too: those asked for, or all of them."""
    if find_spec(package) is None:
        raise BadInput(f"{package} is not installed, and only this comparison needs it: {INSTALL[package]}.", "against")
    names = list(asked) or list(RIVALS[package])
    for name in names:
        if name not in RIVALS[package]:
            raise BadInput(f"{package} has no {name!r}; it has {', '.join(RIVALS[package])}.", "models")
    return names


def duel(name: str, package: str, n_rois: int, batch: int, threads: int, repeats: int) -> dict[str, Any]:
    """Measure one of our models in turns with a package's."""
    check_size(batch, repeats)
    say(f"{name}: {n_rois} ROIs, batch {batch}, against {package}")
    row: dict[str, Any] = {"model": name, "rois": n_rois, "batch": batch, "volumes": VOLUMES, "threads": threads}
    rival = f"{package}:{name}"
    with Worker(name, n_rois, batch, threads) as ours, Worker(rival, n_rois, batch, threads) as theirs:
        try:
            ours.step()
            theirs.step()  # the first allocates
            own, other = in_turns(ours, theirs, repeats)
            mine, its = ours.state(), theirs.state()
        except WorkerEnded as ended:
            return row | {"note": str(ended)}
    return row | {
        "step ms": round(1000 * median(own), 1),
        f"{package} ms": round(1000 * median(other), 1),
        "times as fast": round(median(other) / median(own), 2),
        "steps": len(own),
        "peak MB": round(mine["peak"] - mine["baseline"]),
        f"{package} peak MB": round(its["peak"] - its["baseline"]),
        "parameters": int(mine["parameters"]),
        f"{package} parameters": int(its["parameters"]),
    }


def check_size(batch: int, repeats: int) -> None:
    """Refuse what cannot be measured."""
    if batch < 2 or repeats < 1:
        raise BadInput(
            f"A batch of {batch} and {repeats} repeats are asked for: give 2 subjects or more, and 1 repeat or more."
        )


def compare(names: list[str], n_rois: int, batch: int, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Measure some models at one size, each in turns with the first of them."""
    check_size(batch, repeats)
    rows = []
    with Worker(names[0], n_rois, batch, threads) as yardstick:
        try:
            yardstick.step()  # the first allocates
        except WorkerEnded as ended:
            raise BadInput(
                f"{names[0]} could not make a training step at {n_rois} ROIs, batch {batch}: {ended}"
            ) from ended
        for name in names:
            say(f"{name}: {n_rois} ROIs, batch {batch}")
            row: dict[str, Any] = {"model": name, "rois": n_rois, "batch": batch, "threads": threads}
            if name == names[0]:
                own = [yardstick.step() for _ in range(repeats)]
                rows.append(row | facts(median(own), 1.0, repeats, yardstick.state()))
                continue
            with Worker(name, n_rois, batch, threads) as worker:
                try:
                    worker.step()
                    theirs, own = in_turns(worker, yardstick, repeats)
                    state = worker.state()
                except WorkerEnded as ended:  # most likely out of memory: a result, and the others are still measured
                    rows.append(row | {"note": str(ended)})
                    continue
            rows.append(row | facts(median(theirs), median(theirs) / median(own), len(theirs), state))
    return rows


def facts(seconds: float, ratio: float, steps: int, state: dict[str, float]) -> dict[str, Any]:
    """Return the measured columns of a row."""
    return {
        "step ms": round(1000 * seconds, 1),
        "times bnt": round(ratio, 3),
        "steps": steps,
        "peak MB": round(state["peak"] - state["baseline"]),
        "parameters": int(state["parameters"]),
    }


def in_turns(one: Worker, other: Worker, repeats: int) -> tuple[list[float], list[float]]:
    """Return the seconds of steps of two workers, made in turns."""
    first: list[float] = []
    second: list[float] = []
    started = time.monotonic()
    while len(first) < repeats or (len(first) < MOST_ROUNDS and time.monotonic() - started < SECONDS):
        first.append(one.step())
        second.append(other.step())
    return first, second


class WorkerEnded(Exception):
    """A model's process ended before it answered."""


class Worker:
    """A process that holds one model and makes a step when asked to."""

    def __init__(self, name: str, n_rois: int, batch: int, threads: int) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bnt.bench._models", name, str(n_rois), str(batch), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _ask(self, question: str) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise WorkerEnded(f"the process ended with code {self.process.wait()}")
        answered = json.loads(answer)
        if "refused" in answered:
            raise WorkerEnded(answered["refused"])
        return answered

    def step(self) -> float:
        """Make one step and return its seconds."""
        return self._ask("step")["seconds"]

    def state(self) -> dict[str, float]:
        """Return the peak memory and the baseline in MB, and the number of parameters."""
        return self._ask("state")


def serve(name: str, n_rois: int, batch: int, threads: int) -> None:
    """Hold one model and answer questions from standard input, one line each, until it closes."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    small = torch.nn.Linear(1, 1)  # what torch loads for a first step is not the model's
    first = torch.optim.Adam(small.parameters(), fused=True)
    small(torch.ones(1, 1)).sum().backward()
    first.step()
    baseline = peak_memory()
    theirs = ":" in name
    if not theirs:
        reuse_freed_memory()  # as our training does

    series = torch.randn(batch, VOLUMES, n_rois) + torch.randn(batch, VOLUMES, 1)
    series = (series - series.mean(1, keepdim=True)) / series.std(1, correction=0, keepdim=True)
    x = series.mT @ series / VOLUMES  # correlations (B, V, V)
    model, loss_of = (their_model if theirs else our_model)(name, x, series)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    model.train()

    def step() -> float:
        started = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        with nullcontext() if theirs else wide_products():
            loss = loss_of()
            loss.backward()
        optimiser.step()
        return time.perf_counter() - started

    for question in sys.stdin:
        if question.strip() == "step":
            answer = {"seconds": step()}
        else:
            parameters = sum(p.numel() for p in model.parameters())
            answer = {"peak": peak_memory(), "baseline": baseline, "parameters": parameters}
        print(json.dumps(answer), flush=True)


def our_model(name: str, x: Tensor, series: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a model of the catalogue and its loss on a batch."""
    options = {"n_volumes": VOLUMES} if "n_volumes" in model_options(name) else {}
    model = create_model(name, x.shape[1], 2, **options)
    given = None
    if find_entry(name).needs_series:
        given = x if model.series_kind else series  # partial correlations of series have the shape of correlations
    target = F.one_hot(torch.arange(len(x)) % 2, 2).float()
    prepare = getattr(model, "prepare", None)
    if prepare is not None:
        prepare([x])

    def loss_of() -> Tensor:
        out = model(x, series=given, target=target)
        loss = F.cross_entropy(out.logits, target, reduction="sum")
        return loss if out.loss is None else loss + out.loss

    return model, loss_of


def their_model(word: str, x: Tensor, series: Tensor) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a package's own version of one of our models, ``ml4fmri:meanmlp``, and its own loss on a batch."""
    package, _, name = word.partition(":")
    attribute, reads = RIVALS[package][name]
    model = getattr(import_module(f"{package}.models"), attribute)(x.shape[1], 2)
    inputs = [{"x": x, "series": series}[what] for what in reads]
    labels = torch.arange(len(x)) % 2

    def loss_of() -> Tensor:
        _, load = model(*inputs)
        return model.compute_loss(load, labels)[0]

    return model, loss_of


def main() -> None:
    """Serve the model that the arguments name; one that cannot be made is refused in a sentence."""
    try:
        serve(sys.argv[1], *map(int, sys.argv[2:5]))
    except BadInput as error:
        print(json.dumps({"refused": str(error)}), flush=True)


if __name__ == "__main__":
    main()
