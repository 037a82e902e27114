"""Training in several processes: each computes its rows of every batch, and gradients are summed.

Every process draws the same numbers: the order of subjects, the windows of series and mixup are of the whole batch, and
so are the dropout masks of :mod:`bnt.nn._kernels` on the CPU. Results then depend on the number of processes by
rounding only; networks that draw otherwise (``dgm``, ``graphormer``, ``nn.Dropout`` of one's own) get other draws.
Only the first process writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn import Output
from bnt.nn._kernels import rows_of_batch
from bnt.training._batches import Batch

STARTED = "BNT_PROCESSES_MEET"  # names the file through which processes of --processes find each other
LEFT_ALONE = 75  # exit code of a process whose group has lost another: the launcher says the sentence
GRACE_SECONDS = 15.0  # until the others have noticed, and have said what they have to say
RESUME = "repeat the command with --resume to continue"


class LeftAlone(BadInput):
    """Another process of the training has ended before it was done."""


@dataclass
class Group:
    """The processes of one training, seen from one of them; by default it is alone.

    Attributes
    ----------
    rank, size : int
        Which process this is, from 0, of how many.
    device : str
        Where tensors are that processes exchange: those of NCCL are on a GPU.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    _rows: tuple[int, int, int] = (0, 1, 1)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def part(self, batch: Batch) -> tuple[Batch, float]:
        """Return this process's rows of a batch and their share of it: 0, with one row all the same, if it has none."""
        n = len(batch.x)
        start, stop = n * self.rank // self.size, n * (self.rank + 1) // self.size
        if (start, stop) == (0, n):
            return batch, 1.0
        share, stop = (stop - start) / n, max(stop, start + 1)
        start, stop = (start, stop) if stop <= n else (n - 1, n)
        self._rows = (start, stop, n)
        named = {name: value[start:stop] for name, value in vars(batch).items() if value is not None}
        return replace(batch, **named), share

    def wrap(self, model: nn.Module) -> Callable[..., Output]:
        """Return the network to train: its gradients are summed over the processes, whose weights start equal."""
        if self.size == 1:
            return model
        # Buffers stay each process's own: without batch statistics they are the same everywhere.
        ddp = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)
        # Summed, not averaged as DDP does by itself, which would need losses scaled by the number of processes.
        ddp.register_comm_hook(
            None,
            lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0]),
        )

        def forward(x: Tensor, **more: Any) -> Output:
            with rows_of_batch(*self._rows):
                output = ddp(x, **more)
            self._draw_on_alike()
            return output

        return forward

    def _draw_on_alike(self) -> None:
        """Give every process the first one's generator, as a network may draw by the number of its rows."""
        state = torch.get_rng_state().to(self.device)
        dist.broadcast(state, 0)
        torch.set_rng_state(state.cpu())

    def total(self, value: float) -> float:
        """Return the sum of a number over the processes."""
        return value if self.size == 1 else self._reduced(value, dist.ReduceOp.SUM)

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in one of the processes; all wait for it."""
        return flag if self.size == 1 else self._reduced(float(flag), dist.ReduceOp.MAX) > 0

    def _reduced(self, value: float, how: Any) -> float:
        found = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, how)
        return float(found)

    def joined(self, mine: Sequence[Tensor], n: int, batch_size: int) -> Tensor:
        """Return the rows of n subjects in order, from every process's batches: of N processes each has every N-th."""
        if self.size == 1:
            return torch.cat(list(mine))
        width = int(self._reduced(mine[0].shape[1] if mine else 0, dist.ReduceOp.MAX))
        whole = torch.zeros(n, width, device=self.device)
        for rows, values in zip(torch.arange(n).split(batch_size)[self.rank :: self.size], mine):
            whole[rows] = values
        dist.all_reduce(whole)
        return whole

    def check_epoch(self, epoch: int) -> None:
        """Refuse to resume where processes have read different checkpoints."""
        if self.total(epoch) != self.size * epoch:
            raise BadInput("The processes see different checkpoints: the run must be on a file system that all share.")


ALONE = Group()
_current = [ALONE]


def current() -> Group:
    """Return the group that this process has joined, or itself alone."""
    return _current[-1]


def check_network(model: nn.Module, name: str, batch_size: int, size: int) -> None:
    """Refuse a network whose numbers would depend on how a batch is shared out, and more processes than rows."""
    if any(isinstance(one, nn.modules.batchnorm._BatchNorm) for one in model.modules()):
        raise BadInput(
            f"Model {name!r} has batch normalisation, whose statistics would be of each process's rows and not of the "
            "whole batch (torch's synchronised one does not run on a CPU): train it with one process.",
            "processes",
        )
    if size > batch_size:
        raise BadInput(f"A batch of {batch_size} cannot be shared by {size} processes: ask for fewer.", "processes")


# -- joining and starting --------------------------------------------------------------------------------------


def is_member() -> bool:
    """Whether torchrun, or --processes, has started this process as one of several."""
    return STARTED in os.environ or dist.is_torchelastic_launched()


@contextmanager
def joined_group(device: str) -> Iterator[Group]:
    """Join the processes that were started together, within a block; alone where this one was started by itself."""
    if not is_member():
        yield ALONE
        return
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    place = "cpu"
    if device.startswith("cuda"):
        if torch.cuda.device_count() <= local:
            raise BadInput(f"{size} processes need a GPU each, and there are {torch.cuda.device_count()}.", "processes")
        torch.cuda.set_device(local)
        place = f"cuda:{local}"
    ours = os.environ.get(STARTED)
    if ours:
        threading.Thread(target=_end_with_launcher, daemon=True).start()
    with left_alone_said():
        dist.init_process_group(
            "nccl" if place != "cpu" else "gloo", f"file://{ours}" if ours else "env://", rank=rank, world_size=size
        )
        _current.append(Group(rank, size, place))
        try:
            yield _current[-1]
        finally:
            _current.pop()
            dist.destroy_process_group()


@contextmanager
def left_alone_said() -> Iterator[None]:
    """Turn what the backends raise where another process has gone into one sentence."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if not isinstance(error, dist.DistBackendError | dist.DistNetworkError) and not any(
            word in text for word in ("gloo", "nccl", "connection closed", "connection reset", "broken pipe")
        ):
            raise
        raise LeftAlone(f"Another process of this training has ended before it was done: {RESUME}.") from error


def _end_with_launcher() -> None:
    """End this process as soon as its launcher, at the other end of the standard input, has gone."""
    os.read(0, 1)  # not through sys.stdin, whose lock the end of Python would wait for
    os._exit(1)


def launch(words: Sequence[str], size: int) -> int:
    """Run ``bnt WORDS`` in several processes of this machine; return the exit code of the first.

    Where one of them is killed, the others end too, and BadInput says so. They share the cores.
    """
    threads = os.environ.get("OMP_NUM_THREADS") or max(1, len(os.sched_getaffinity(0)) // size)
    with tempfile.TemporaryDirectory() as folder:
        shared = {STARTED: f"{folder}/meet", "WORLD_SIZE": str(size), "OMP_NUM_THREADS": str(threads)}
        shared |= {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(size):
                place = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                with open(f"{folder}/{rank}", "wb") as said:
                    others: dict[str, Any] = {"stdout": said, "stderr": said} if rank else {}
                    command = [sys.executable, "-P", "-m", "bnt", *words]
                    started.append(
                        subprocess.Popen(
                            command, env=os.environ | place, stdin=subprocess.PIPE, start_new_session=True, **others
                        )
                    )
            return _watch(started, Path(folder))
        finally:
            for one in started:
                one.kill()
                one.wait()


def _watch(started: Sequence[subprocess.Popen[bytes]], folder: Path) -> int:
    """Wait until all have ended well, or one has not."""
    while (codes := [one.poll() for one in started]) and not any(codes) and None in codes:
        time.sleep(0.05)
    if not any(codes):
        return 0
    until = time.monotonic() + GRACE_SECONDS
    while None in [one.poll() for one in started] and time.monotonic() < until:
        time.sleep(0.05)
    codes = [one.poll() for one in started]
    if codes[0] is not None and codes[0] not in (0, LEFT_ALONE) and codes[0] > 0:
        return codes[0]  # it has said why
    rank, code = next((r, c) for r, c in enumerate(codes) if c not in (None, 0, LEFT_ALONE))
    which = f"Process {rank + 1} of {len(started)} of this training"
    if code < 0:
        raise BadInput(f"{which} was killed by signal {-code}, perhaps because memory ran out: {RESUME}.")
    words = (folder / str(rank)).read_text(errors="replace").strip().splitlines() or ["no message"]
    raise BadInput(f"{which} failed ({words[-1].strip().rstrip('.')}): {RESUME}.")
