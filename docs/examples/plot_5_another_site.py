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
# The page is ``validation/validation.html``; the numbers are in a JSON file.
found = json.loads(next((folder / "validation").glob("*.json")).read_text())
print(sorted(found))
