"""The process that loads the libraries once and that workers fork from; it starts before anything slow is imported."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
from collections.abc import Iterable
from typing import Any

from bnt.models._catalog import CATALOG

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Loaded once, before the workers fork: a worker that imports them itself spends longer on it than a linear model runs.
PRELOADED = (
    "bnt.training._run",
    "bnt.training._config",
    "bnt.studies._job",
    "bnt.models.classical",
    "bnt.training._learner",
    "scipy.stats",
    "sklearn.linear_model",
    "threadpoolctl",
)
FOR_NETWORKS = ("bnt.models._bnt",)


def start_server(threads: int, models: Iterable[str]) -> Any:
    """Return the context whose server has the libraries loaded, once, with few threads of their own.

    The first call decides. It returns while the server imports: a command can start it before it reads anything.

    Parameters
    ----------
    models : iterable of str
        What will be trained: linear models do without the libraries of networks.
    """
    linear = {entry.name for entry in CATALOG if entry.family == "classical"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *(() if linear.issuperset(models) else FOR_NETWORKS)])
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    multiprocessing.resource_tracker.ensure_running()  # here, because its start ends the block of signals below
    # The server and its workers inherit this: a Ctrl-C while they import is the driver's, too.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return context
