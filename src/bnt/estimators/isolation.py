"""Training inside a caller's program without touching its random numbers or its threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from bnt.errors import BadInput
from bnt.training.run import check_device


def checked_device(name: str) -> torch.device:
    """Return the device, or say that there is none of this name."""
    check_device(name)
    return torch.device(name)


@contextmanager
def undisturbed(device: str, threads: int | None) -> Iterator[None]:
    """Leave torch's generators and number of threads afterwards as they were."""
    place = checked_device(device)
    if threads is not None and threads < 1:
        raise BadInput(f"threads is {threads}: give at least 1, or None to leave torch's number as it is.")
    forked = []
    if place.type == "cuda":
        forked = [torch.cuda.current_device() if place.index is None else place.index]
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=forked):
        try:
            if threads is None:
                yield
                return
            torch.set_num_threads(threads)
            with threadpool_limits(threads):  # those of linear algebra, too
                yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)
