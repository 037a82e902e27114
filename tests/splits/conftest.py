"""Fixtures for the tests of splits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # cohorts.py: tests are imported by path, without packages

from cohorts import abide_like  # noqa: E402


@pytest.fixture(scope="session")
def abide():
    """The sites and diagnoses of the 1,009 subjects."""
    return abide_like()
