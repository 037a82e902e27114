"""Fixtures shared by all tests. The real data lie beside the checkout where there are any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from bnt.cohort._files import held

# No test depends on a clock, or on which examples are drawn today.
settings.register_profile("bnt", deadline=None, derandomize=True, database=None, max_examples=40)
settings.load_profile("bnt")

sys.path.insert(0, str(Path(__file__).parent))  # fmriprep_files.py, which several folders use

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


@pytest.fixture(scope="session")
def shared_abide() -> Path:
    """The folder with the packed ABIDE data, its splits and baselines."""
    if not (SHARED_ABIDE / "unpack").is_file():
        if os.environ.get("BNT_REQUIRE_ABIDE"):
            pytest.fail(f"the real ABIDE data are required and are not at {SHARED_ABIDE}")
        pytest.skip(f"the real ABIDE data are not at {SHARED_ABIDE}")
    return SHARED_ABIDE


@pytest.fixture(scope="session")
def abide_dir(shared_abide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real ABIDE files, laid out as nilearn caches them (1,035 subjects), once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "abide"
    with held(folder.with_suffix(".lock"), wait=600):
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            subprocess.run([sys.executable, shared_abide / "unpack", part], check=True, capture_output=True)
            part.rename(folder)
    return folder


# Folders whose fixtures train models or study them: their tests share one process, so that each is made once.
TOGETHER = ("explain", "report")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share something expensive in one process, and start those groups first."""
    for item in items:
        folder = item.path.parent.name
        if item.get_closest_marker("abide"):
            item.add_marker(pytest.mark.xdist_group("abide"))
        elif folder in TOGETHER and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(folder))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran on real data, so that a silent skip is seen."""
    passed = terminalreporter.getreports("passed")
    count = sum(1 for report in passed if report.when == "call" and "abide" in report.keywords)
    terminalreporter.write_line(f"real-data tests: {count} passed")
