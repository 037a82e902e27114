"""
Validate a model at another site
================================

A score on people from the same sites says little about people from elsewhere. Here a model is trained without one
site and then validated on it: discrimination, calibration and how unlike the training people they are.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from bnt.plotting import calibration_curves, roc_curves

folder = Path(tempfile.mkdtemp())


def shell(line: str) -> None:
    """Run a command as you would type it, and print what it says."""
    done = subprocess.run([sys.executable, "-m", *shlex.split(line)], cwd=folder, capture_output=True, text=True)
    print(f"$ {line}\n{done.stdout or done.stderr}")


# %%
# Train without a site
# --------------------
# ``site-04`` is left out by a condition; the run has never seen anyone of it.
shell("bnt simulate cohort --subjects 240 --rois 30 --sites 4 --effect 1.0 --seed 3")
shell("bnt select cohort here --where \"site != 'site-04'\"")
shell("bnt select cohort elsewhere --where \"site == 'site-04'\"")
shell("bnt train here --model ridge --out run")

# %%
# Validate it there
# -----------------
# The command refuses people that the run was trained on, by their ids and by their scans.
shell("bnt validate run elsewhere --out validation")

# %%
# The page is ``validation/validation.html``; the numbers are in JSON and CSV files beside it.
found = json.loads((folder / "validation" / "validation.json").read_text())
print(sorted(found))

# %%
# Discrimination and calibration there
# ------------------------------------
# Each person of the other site has a row in ``people.csv``. The first figure asks whether patients rank above controls,
# the second whether a probability means what it says; a model can pass the first and fail the second.
people = pd.read_csv(folder / "validation" / "people.csv")
there = {"ridge at site-04": (people["label"].to_numpy() == 1, people["p_1"].to_numpy())}
roc_curves(there)

# %%
calibration_curves(there)
