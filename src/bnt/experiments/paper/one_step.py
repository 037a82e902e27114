"""Time and memory of a training step of one model on simulated connectomes, a line of JSON for each V.

``python -m bnt.experiments.paper.one_step MODEL THREADS V ...``, in a process of its own, so that models do not add up.
V has to rise: the peak of a process never falls.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bnt.errors import BadInput
from bnt.experiments.paper.complexity import N_SUBJECTS, N_VOLUMES, STEPS


def step_cost(model: str, n_rois: int, threads: int, held: float) -> dict[str, float]:
    """Return the median seconds of a step, and the megabytes at most beyond those ``held`` before."""
    import torch

    from bnt.cohort import Cohort
    from bnt.experiments.job import Variant
    from bnt.experiments.paper.estimate import training_steps
    from bnt.experiments.paper.plan import fitted
    from bnt.models import find_entry

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(N_VOLUMES, n_rois)).astype(np.float32) for _ in range(N_SUBJECTS)]
    matrices = np.stack([np.corrcoef(one.T) for one in series]).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"sub-{i:02d}" for i in range(N_SUBJECTS)]})
    entry = find_entry(model)
    cohort = Cohort(matrices, table, timeseries=series if entry.needs_series else None)
    variant, _ = fitted(cohort, Variant(model, model))
    clock = time.process_time if threads == 1 else time.perf_counter
    taken = training_steps(cohort, variant, N_SUBJECTS, at_least=STEPS, clock=clock)
    return {"n_rois": n_rois, "step_seconds": float(np.median(taken)), "memory_mb": max(peak_mb() - held, 1.0)}


def peak_mb() -> float:
    """Return the most memory that this process has held so far, what its parent held not counted."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    try:
        import torch  # noqa: F401  (what it holds is no model's)

        held = peak_mb()
        for size in sorted(map(int, sys.argv[3:])):
            print(json.dumps(step_cost(sys.argv[1], size, int(sys.argv[2]), held)), flush=True)
    except (BadInput, MemoryError) as error:
        sys.exit(str(error) or "out of memory")
