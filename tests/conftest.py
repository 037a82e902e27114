"""Fixtures shared by all tests. The real data lie beside the checkout where there are any."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The process that shares the tests out reads this file too. What needs torch or NumPy is imported in the fixtures: the
# workers start four seconds earlier.

# No test depends on a clock, or on which examples are drawn today.
settings.register_profile("bnt", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("bnt")

sys.path.insert(0, str(Path(__file__).parent))  # fmriprep_files.py, which several folders use

# A PNG of one pixel.
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")
SHARED_ABIDE = Path(__file__).resolve().parents[2] / "shared" / "abide"


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread per test process: two processes share two cores, and results do not depend on the load."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory):
    """What is remembered of own models goes to a temporary folder, not to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BNT_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def processes_of_studies():
    """Processes of studies fork from the test's own, which has the libraries loaded: a server takes seconds to start.

    Tests of studies themselves have the real server; the first one starts it, with what networks need, too.
    """
    from bnt.studies import _engine, _server

    real = _server.start_server

    def start(threads: int, models: Iterable[str]) -> Any:
        ours = place_of(os.environ.get("PYTEST_CURRENT_TEST", "")).startswith("studies")
        if ours or os.environ.get("OMP_NUM_THREADS") != "1":  # threads of libraries do not survive a fork
            return real(threads, models)
        for module in _server.PRELOADED:
            import_module(module)
        return multiprocessing.get_context("fork")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_server, "PRELOADED", (*_server.PRELOADED, *_server.FOR_NETWORKS))
        for module in (_server, _engine):
            patch.setattr(module, "start_server", start)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, papers and explanations without the letters and lines of their figures, for tests of what they say."""
    from bnt.explain import _writing
    from bnt.paper import _grid
    from bnt.report import _paper, _render

    monkeypatch.setattr(_render, "inline_svg", lambda figure, name, description: "<svg></svg>")
    for module in (_grid, _paper, _writing):
        monkeypatch.setattr(module, "save_figure", lambda figure, path, dpi=0: Path(path).write_bytes(PIXEL))


@pytest.fixture(scope="session")
def shared_abide() -> Path:
    """The folder with the packed ABIDE data, its splits and baselines."""
    if not (SHARED_ABIDE / "unpack").is_file():
        if os.environ.get("BNT_REQUIRE_ABIDE"):
            pytest.fail(f"the real ABIDE data are required and are not at {SHARED_ABIDE}")
        pytest.skip(f"the real ABIDE data are not at {SHARED_ABIDE}")
    return SHARED_ABIDE


VOLUMES = 100  # of each series: the fewest that the paper's rule keeps; reading all of them takes twice as long


def lay_out(shared: Path, folder: Path) -> None:
    """Write the packed series, cut to their first volumes, as nilearn caches them.

    In the unit they are packed in, whole numbers: written and read in a third of the time, and no correlation, constant
    ROI or repeated scan depends on the unit.
    """
    import numpy as np

    root = folder / "ABIDE_pcp"
    place = root / "cpac" / "filt_noglobal"
    place.mkdir(parents=True)
    shutil.copy(shared / "Phenotypic_V1_0b_preprocessed1.csv", root)
    packed = np.load(shared / "cpac_filt_noglobal_rois_cc200.npz", allow_pickle=False)
    series, length, names = packed["series"], packed["length"], packed["file_id"]
    header = "\t".join(f"#{i}" for i in range(1, series.shape[1] + 1))
    words = np.array([str(number) for number in range(-(2**15), 2**15)], dtype=object)
    for i, start in enumerate(np.cumsum(length) - length):
        values = words[series[start : start + min(length[i], VOLUMES)].astype(int) + 2**15]
        lines = [header, *map("\t".join, values.tolist()), ""]
        (place / f"{names[i]}_rois_cc200.1D").write_text("\n".join(lines))


@pytest.fixture(scope="session")
def abide_dir(shared_abide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real ABIDE series, laid out as nilearn caches them (1,035 subjects), once for all test processes."""
    from bnt.cohort._files import held

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "abide"
    with held(folder.with_suffix(".lock"), wait=600):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            lay_out(shared_abide, part)
            part.rename(folder)
    return folder


# Tests of one file share a process, so that what they share is made once; so do those of these folders.
TOGETHER = ("explain", "faults", "report", "studies")
LONG = ("sources/test_abide.py", "studies", "report", "faults", "explain", "test_api.py", "paper")  # started first
APART = ("models/test_contract.py", "estimators/test_scikit_learn_tools.py", "nn", "cohort")  # last: they fill gaps


def place_of(nodeid: str) -> str:
    """Return the file of a test, below tests/."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def unit_of(nodeid: str) -> str:
    """Return what a test shares a process with: its folder, its file or nothing."""
    place = place_of(nodeid)
    folder = place.partition("/")[0]
    if place.startswith(APART):
        return nodeid
    return folder if folder in TOGETHER else place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest units first and those that can be divided last, so that both processes end together."""

    def turn(item: pytest.Item) -> tuple[bool, int]:
        place = place_of(item.nodeid)
        first = [number for number, start in enumerate(LONG) if place.startswith(start)]
        return place.startswith(APART), first[0] if first else len(LONG)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests out by :func:`unit_of`: pytest 9.2 no longer reads the attribute where xdist keeps its groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems
    return ByUnit(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran on real data, so that a silent skip is seen."""
    passed = terminalreporter.getreports("passed")
    count = sum(1 for report in passed if report.when == "call" and "abide" in report.keywords)
    terminalreporter.write_line(f"real-data tests: {count} passed")
