"""Benchmark of training: a step and an epoch of ``bnt-released`` against the released model; memory at ABCD's size.

The released code's model is re-created from torch's own layers: a yardstick for speed and an oracle for tests. It is
written by us from the description of its mathematics; nothing is copied. It computes what ``bnt-released`` computes,
with :class:`torch.nn.TransformerEncoderLayer`, :class:`torch.nn.Dropout` and masks drawn with one Bernoulli number per
entry, as the released code does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bnt.bench import BenchSettings, peak_memory
from bnt.cohort import Cohort, CohortWriter, load_cohort
from bnt.cohort._triangle import n_edges
from bnt.models import create_model
from bnt.nn._kernels import wide_products
from bnt.training import find_recipe
from bnt.training._batches import Batches
from bnt.training._loop import fit
from bnt.training._task import task_for

N_HEADS, FFN, DROPOUT, N_LAYERS, N_CLUSTERS = 4, 1024, 0.1, 2, 100  # of the released code
BATCH, STEPS = 16, 6


class ReleasedStep(nn.Module):
    """Two stock encoder layers, the hidden MLP, the squared projection and the head.

    Parameters
    ----------
    n_rois, n_classes : int
        V and C.
    n_clusters : int
        K.
    dropout : float
        Of every dropout in the encoder.
    """

    def __init__(self, n_rois: int, n_classes: int = 2, n_clusters: int = N_CLUSTERS, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(n_rois, N_HEADS, FFN, dropout, batch_first=True) for _ in range(N_LAYERS)
        )
        size = n_rois * n_rois
        self.hidden = nn.Sequential(
            nn.Linear(size, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, size)
        )
        self.centres = nn.Parameter(torch.empty(n_clusters, n_rois), requires_grad=False)
        nn.init.orthogonal_(self.centres)
        self.reduce = nn.Sequential(nn.Linear(n_rois, 8), nn.LeakyReLU())
        self.head = nn.Sequential(
            nn.Linear(8 * n_clusters, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU(), nn.Linear(32, n_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, C) of connectomes (B, V, V)."""
        z = x
        for layer in self.layers:
            z = layer(z)
        z = self.hidden(z.flatten(1)).reshape(z.shape)
        cosines = z @ self.centres.T  # (B, V, K)
        p = torch.softmax(cosines**2 / self.centres.norm(dim=1), dim=-1)
        clusters = torch.bmm(p.transpose(1, 2), z)  # (B, K, V)
        return self.head(self.reduce(clusters).flatten(1))


def copy_weights(source: nn.Module, target: ReleasedStep) -> None:
    """Copy the weights of a ``bnt-released`` model, whose names differ only in the prefix of each part."""
    prefixes = {"encoder.layers.": "layers.", "readout.": "", "head.": "head."}
    renamed = {}
    for name, value in source.state_dict().items():
        old = next(prefix for prefix in prefixes if name.startswith(prefix))
        renamed[prefixes[old] + name.removeprefix(old)] = value
    target.load_state_dict(renamed)


def step_gflop(n_rois: int, batch: int, n_clusters: int = 100) -> float:
    """Return the GFLOP of forward + backward: three times the forward products of ``bnt-released``."""
    v = n_rois
    layer = 8 * v**3 + 4 * v**3 + 4 * 1024 * v**2  # projections, attention, feed-forward
    readout = 128 * v**2 + 4 * n_clusters * v**2
    return 3 * batch * (2 * layer + readout) / 1e9


def best_times(actions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time actions in turns, so that a busy moment hits all of them, and return each one's best."""
    times = dict.fromkeys(actions, float("inf"))
    for action in actions.values():
        action()  # warm-up
    for _ in range(repeats):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            times[name] = min(times[name], time.perf_counter() - started)
    return times


def sgemm_peak(repeats: int) -> float:
    """Return the GFLOP/s of a large float32 product with the threads in force."""
    a = torch.randn(2048, 2048)
    b = torch.randn(2048, 2048)
    with wide_products():
        return 2 * 2048**3 / 1e9 / best_times({"gemm": lambda: torch.mm(a, b)}, max(repeats, 5))["gemm"]


def step_action(model: Any, x: Any, target: Any, ours: bool) -> Callable[[], None]:
    """Return a training step: forward, summed cross-entropy, backward, Adam; ours as our loop makes it."""
    optimiser = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=1e-4, fused=ours or None
    )
    model.train()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with wide_products() if ours else nullcontext():
            output = model(x)
            logits = output.logits if ours else output
            loss = -(target * logits.log_softmax(dim=1)).sum()
            loss.backward()
        optimiser.step()

    return step


def released_epoch(model: Any, sets: list[Any], batch: int) -> Callable[[], None]:
    """Return an epoch as the released code makes it: DataLoader, mixup, both evaluations with gradients on."""
    train, val, test = sets
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4)

    def epoch() -> None:
        model.train()
        for x, y in DataLoader(train, batch, shuffle=True, drop_last=True):
            weight = float(torch.rand(()))
            order = torch.randperm(len(x))
            x, y = weight * x + (1 - weight) * x[order], weight * y + (1 - weight) * y[order]
            loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.eval()
        for part in (val, test):
            for x, _ in DataLoader(part, batch, shuffle=True):
                model(x).softmax(dim=1).tolist()

    return epoch


def our_epoch(cohort: Any, parts: list[Any], batch: int) -> Callable[[], None]:
    """Return one epoch of our loop with the ``released`` recipe, validation scored."""
    y = cohort.labels("diagnosis")
    task = task_for(y)
    train, val = (Batches(cohort, rows, task.targets(y[rows])) for rows in parts[:2])
    model = create_model("bnt-released", cohort.n_rois, 2, n_clusters=min(100, cohort.n_rois))
    recipe = find_recipe("released", epochs=1, batch_size=batch)

    def epoch() -> None:
        fit(model, task, recipe, train, val, y[parts[1]])

    return epoch


def random_cohort(n_subjects: int, n_rois: int, seed: int = 0) -> Any:
    """Return a cohort of random correlations, for timing only."""
    rng = np.random.default_rng(seed)
    edges = np.tanh(0.3 * rng.standard_normal((n_subjects, n_edges(n_rois)), dtype=np.float32))
    table = pd.DataFrame(
        {"participant_id": [f"s{i}" for i in range(n_subjects)], "diagnosis": np.arange(n_subjects) % 2}
    )
    return Cohort(edges, table)


def train(settings: BenchSettings) -> list[dict[str, Any]]:
    """Measure a step, an epoch and the memory of streamed training."""
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    v = settings.rois or 200
    n = settings.subjects or 1009
    clusters = min(100, v)
    peak = sgemm_peak(settings.repeats)
    x = torch.randn(BATCH, v, v)
    x = x + x.mT
    target = torch.eye(2)[torch.arange(BATCH) % 2]
    ours = create_model("bnt-released", v, 2, n_clusters=clusters)
    steps = best_times(
        {
            "released step": step_action(ReleasedStep(v, n_clusters=clusters), x, target, ours=False),
            "our step": step_action(ours, x, target, ours=True),
        },
        max(settings.repeats, STEPS),
    )
    cohort = random_cohort(n, v)
    order = np.random.default_rng(0).permutation(n)
    cut = [int(0.7 * n), int(0.8 * n)]
    parts = np.split(order, cut)
    squares = cohort.batch(np.arange(n))
    labels = torch.eye(2)[torch.arange(n) % 2]
    sets = [TensorDataset(squares[torch.from_numpy(p)], labels[torch.from_numpy(p)]) for p in parts]
    epochs = best_times(
        {
            "released epoch": released_epoch(ReleasedStep(v, n_clusters=clusters), sets, BATCH),
            "our epoch": our_epoch(cohort, parts, BATCH),
        },
        settings.repeats,
    )
    gflop = step_gflop(v, BATCH, clusters)
    rows = []
    for name, seconds in {**steps, **epochs}.items():
        kind = name.split()[-1]
        work = gflop * (1 if kind == "step" else int(0.7 * n) // BATCH)
        base = (steps if kind == "step" else epochs)[f"released {kind}"]
        rows.append(
            {
                "what": name,
                "V": v,
                "batch": BATCH,
                "threads": settings.threads,
                "seconds": seconds,
                "times faster": base / seconds,
                "GFLOP/s": work / seconds,
                "of sgemm peak": work / seconds / peak,
            }
        )
    rows.append({"what": "sgemm peak", "threads": settings.threads, "GFLOP/s": peak, "of sgemm peak": 1.0})
    if settings.subjects is None:
        rows.append(streamed_memory(settings.folder))
    return rows


def streamed_memory(folder: Path | None) -> dict[str, Any]:
    """Train a few steps from a store of ABCD's size (7,901 x 360) in a fresh process; report its peak memory."""
    with TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-c", f"from bnt.bench._train import large_run; large_run({work!r})"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, seconds = done.stdout.split()[-2:]
    return {
        "what": "streamed training, 7,901 subjects, peak memory MB",
        "V": 360,
        "batch": BATCH,
        "threads": 1,
        "seconds": float(seconds),
        "memory MB": float(peak),
    }


def large_run(folder: str, n_subjects: int = 7901, n_rois: int = 360, n_steps: int = 8) -> None:
    """Write a store of that size, train ``n_steps`` steps from it, and print peak memory (MB) and seconds per step."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with CohortWriter(Path(folder) / "cohort", n_rois) as writer:
        for start in range(0, n_subjects, 128):
            size = (min(128, n_subjects - start), n_edges(n_rois))
            writer.append(np.tanh(0.3 * rng.standard_normal(size, dtype=np.float32)))
        ids = [f"s{i}" for i in range(n_subjects)]
        writer.finish(pd.DataFrame({"participant_id": ids, "sex": np.arange(n_subjects) % 2}))
    cohort = load_cohort(Path(folder) / "cohort")
    y = cohort.labels("sex")
    task = task_for(y)
    rows = np.arange(int(0.7 * n_subjects))
    model = create_model("bnt-released", n_rois, 2)
    batches = Batches(cohort, rows, task.targets(y[rows]))
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    started = time.perf_counter()
    for step, batch in enumerate(batches.shuffled(BATCH, drop_last=True)):
        if step == n_steps:
            break
        optimiser.zero_grad(set_to_none=True)
        with wide_products():
            loss = task.loss(model(batch.x).logits, batch.target, None, "sum")
            loss.backward()
        optimiser.step()
    seconds = (time.perf_counter() - started) / n_steps
    print(peak_memory(), seconds)
