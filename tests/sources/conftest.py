"""Tests of this folder share source_files.py, which pytest's importlib mode does not put on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
