"""How time and memory grow with the number of people: simulated cohorts, every step in a process of its own.

    python benchmarks/scale.py --sizes 1000 2000 5000 --rois 360 --csv results/bench/scale.csv --folder scratch
    python benchmarks/scale.py --csv results/bench/scale.csv --figure docs/figures/scale.png --page docs/cluster.md
    python benchmarks/scale.py --agreement cohort --models ridge svm --csv results/bench/memory-bound.csv

The steps of a size are done one after the other, each a `bnt` command as a user types it, with one thread; CPU seconds
and the largest resident memory of the process are appended to the table. A step that the table has is not done again.
Networks make one epoch; `import` reads one .npy file of series (200 volumes) per subject. Without --sizes nothing is
measured: the growth is printed, the figure drawn, and the table of growth in the page replaced.

--agreement fits classical models twice on the first split of a cohort, exactly and with features on disk, and appends
both AUROCs (of validation and test, on whom nothing is selected) and how far the decisions differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bnt.cohort import load_cohort
from bnt.models import create_model
from bnt.models.classical._inputs import Inputs, exact_gb, memory_bound
from bnt.splits import named_splits

CLASSICAL = ("ridge", "logistic", "svm", "cpm", "krr", "tangent-logistic", "linear-ensemble", "multi-kernel", "best")
MODELS = (*CLASSICAL, "atlas-ensemble", "bnt", "bnt-released")
STEPS = ("simulate", "import", "info", *MODELS, "explain", "report")
VOLUMES, TRAINING = 200, 0.7  # volumes of a scan; share of the subjects who are trained on
KEYS = ["step", "subjects", "rois", "memory_gb"]
UK_BIOBANK = 40_000
MARK = "<!-- growth -->"
# Linux counts the memory of whoever starts a process as that process's own: so a small one starts it, not this one.
LAUNCH = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def main() -> None:
    """Measure what is asked for and not in the table yet; print the growth, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--rois", type=int, default=360)
    parser.add_argument("--steps", nargs="*", choices=STEPS, default=list(STEPS))
    parser.add_argument("--memory-gb", type=float, default=4.0)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("scale"), help="where cohorts and runs are made")
    parser.add_argument("--keep", action="store_true", help="keep the cohorts")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--page", type=Path, help="a page with <!-- growth --> around its table")
    parser.add_argument("--agreement", type=Path, metavar="COHORT")
    parser.add_argument("--models", nargs="*", choices=MODELS[: len(CLASSICAL) + 1], default=list(CLASSICAL))
    given = parser.parse_args()
    if given.agreement is not None:
        for name in given.models:
            append(given.csv, agreement(given.agreement, name))
        return
    for size in given.sizes:
        measure(size, given)
    if given.csv.is_file():
        table = pd.read_csv(given.csv)
        print(growth(table).to_string(index=False))
        if given.figure is not None:
            draw(table, given.figure)
        if given.page is not None:
            before, _, after = given.page.read_text().split(MARK)
            given.page.write_text(f"{before}{MARK}\n{as_markdown(growth(table))}\n{MARK}{after}")


def measure(size: int, given: argparse.Namespace) -> None:
    """Do the steps of one size that the table does not have."""
    have = pd.read_csv(given.csv) if given.csv.is_file() else pd.DataFrame(columns=KEYS)
    same = (have["subjects"] == size) & (have["rois"] == given.rois) & (have["memory_gb"] == given.memory_gb)
    todo = [step for step in given.steps if step not in set(have["step"][same])]
    if not todo:
        return
    folder = given.folder / f"{size}-{given.rois}"
    cohort, run = folder / "cohort", folder / "ridge"
    folder.mkdir(parents=True, exist_ok=True)
    if not cohort.is_dir() and "simulate" not in todo and todo != ["import"]:
        carry_out(command("simulate", size, given, cohort, run))
    for step in todo:
        if step == "import":
            write_series(folder / "scans", size, given.rois)
        if step in ("explain", "report") and not run.is_dir():
            carry_out(command("ridge", size, given, cohort, run))
        words = command(step, size, given, cohort, folder / step if step in MODELS else run)
        print(f"{size} x {given.rois}: {step}", flush=True)
        found = carry_out(words)
        row = {"step": step, "subjects": size, "rois": given.rois, "memory_gb": given.memory_gb, **found}
        row["command"] = " ".join(["bnt", *words]).replace(f"{folder}/", "")
        append(given.csv, row)
        if step in MODELS and step != "ridge":
            shutil.rmtree(folder / step)
        if step == "import":
            shutil.rmtree(folder / "scans")
            shutil.rmtree(folder / "imported")
    if not given.keep:
        shutil.rmtree(folder)


def append(file: Path, row: dict[str, Any]) -> None:
    """Add a row to a table."""
    pd.DataFrame([row]).to_csv(file, mode="a", header=not file.is_file(), index=False)


def agreement(folder: Path, name: str) -> dict[str, Any]:
    """Return how well a model with features on disk agrees with the exact one, on the first split of a cohort."""
    cohort = load_cohort(folder)
    (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    train, *others = split.rows(cohort)
    tested = np.concatenate(others)
    labels = cohort.labels("diagnosis")
    y, found, seconds = (labels == np.unique(labels)[-1]).astype(int), [], []
    for bounded in (False, True):
        started = time.process_time()
        with memory_bound(1e-6):
            one, other = (Inputs.of(cohort, rows, every_atlas=True, bounded=bounded) for rows in (train, tested))
            model = create_model(name, cohort.n_rois, 2).fit(one, y[train])
            found.append(model.decisions(other)[:, 0])
        seconds.append(round(time.process_time() - started, 1))
    exact, streamed = (roc_auc_score(y[tested], decisions) for decisions in found)
    return {
        "model": name,
        "training": len(train),
        "tested": len(tested),
        "rois": cohort.n_rois,
        "auroc_exact": round(exact, 5),
        "auroc_on_disk": round(streamed, 5),
        "difference": round(streamed - exact, 5),
        "decisions_rms_over_sd": float(f"{np.std(found[1] - found[0]) / np.std(found[0]):.2g}"),
        "cpu_s_exact": seconds[0],
        "cpu_s_on_disk": seconds[1],
    }


def command(step: str, size: int, given: argparse.Namespace, cohort: Path, run: Path) -> list[str]:
    """Return the words of a step."""
    if step == "simulate":
        number = ["--subjects", str(size), "--rois", str(given.rois), "--sites", "8", "--volumes", str(VOLUMES)]
        return ["simulate", str(cohort), *number, "--no-series", "--overwrite"]
    if step == "import":
        return ["import", str(cohort.parent / "scans"), str(cohort.parent / "imported"), "--jobs", "1", "--overwrite"]
    if step == "info":
        return ["info", str(cohort)]
    if step == "explain":
        return ["explain", str(run), str(cohort), "--out", str(run / "explain"), "--overwrite"]
    if step == "report":
        return ["report", str(run)]
    words = ["train", str(cohort), "--model", step, "--out", str(run), "--overwrite", "--threads", "1"]
    return words + (["--change", "epochs=1"] if step.startswith("bnt") else ["--memory-gb", f"{given.memory_gb:g}"])


def write_series(folder: Path, size: int, rois: int) -> None:
    """Write one file of random series per subject."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(size):
        np.save(folder / f"sub-{i:06d}.npy", rng.standard_normal((VOLUMES, rois), dtype=np.float32))


def carry_out(words: list[str]) -> dict[str, float]:
    """Run a command; return its seconds, CPU seconds (with those of its children) and largest resident memory."""
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    started = time.monotonic()
    launched = [sys.executable, "-S", "-c", LAUNCH, sys.executable, "-m", "bnt", *words]
    done = subprocess.run(launched, stdout=subprocess.PIPE, text=True, env=os.environ | variables)
    code, spent, most = done.stdout.split()
    if int(code):
        raise SystemExit(f"bnt {' '.join(words)} ended with code {code}")
    return {
        "seconds": round(time.monotonic() - started, 1),
        "cpu_s": round(float(spent), 1),
        "peak_mb": round(int(most) / 1024),
    }


def growth(table: pd.DataFrame) -> pd.DataFrame:
    """Return the exponents of growth of each step with the number of subjects, and what they say of 40,000.

    The exponent is the slope of log(CPU seconds) and of log(memory) on log(subjects), without the start of Python and
    its libraries (the smallest time and memory of ``info``), over all sizes that were measured. A classical model whose
    largest size was solved in memory says nothing of 40,000, who are solved on disk.
    """
    rows = []
    table = table[table["memory_gb"] == table["memory_gb"].max()]
    for rois, of_rois in table.groupby("rois"):
        start = of_rois[of_rois["step"] == "info"][["cpu_s", "peak_mb"]].min().fillna(0.0) * 0.9
        for step in [name for name in STEPS if name in set(of_rois["step"])]:
            part = of_rois[of_rois["step"] == step].sort_values("subjects")
            row = {"rois": rois, "step": step, "sizes": " ".join(map(str, part["subjects"]))}
            for column, name, least in (("cpu_s", "time", 1.0), ("peak_mb", "memory", 0.0)):
                row[f"{name} at the largest"] = part[column].iloc[-1]
                slope, at = fitted(part["subjects"].to_numpy(), part[column].to_numpy() - start[column], least)
                row[f"{name} exponent"] = slope
                row[f"{name} at {UK_BIOBANK}"] = at + start[column] if on_disk(part.iloc[-1]) else float("nan")
            rows.append(row)
    return pd.DataFrame(rows).round(2)


def on_disk(row: pd.Series) -> bool:
    """Whether a step is solved at its size as at that of UK Biobank: classical models, with features on disk."""
    n_edges = row["rois"] * (row["rois"] - 1) // 2
    return row["step"] not in CLASSICAL or exact_gb(int(TRAINING * row["subjects"]), n_edges) > row["memory_gb"]


def as_markdown(table: pd.DataFrame) -> str:
    """Return the growth as a table of a page; a dash where it is not known."""
    head = "| command | ROIs | people | CPU s | exponent | CPU s at 40,000 | GB | exponent | GB at 40,000 |"
    rows = [head, "|---|---|---|---|---|---|---|---|---|"]
    for row in table.to_dict("records"):
        cells = [f"`{row['step']}`", f"{row['rois']:,}", ", ".join(f"{int(n):,}" for n in row["sizes"].split())]
        for name, per, digits in (("time", 1, 0), ("memory", 1000, 2)):
            cells.append(f"{row[f'{name} at the largest'] / per:,.{digits}f}")
            exponent, at = row[f"{name} exponent"], row[f"{name} at {UK_BIOBANK}"] / per
            cells += [f"{exponent:.2f}" if np.isfinite(exponent) else "-"]
            cells += [f"{at:,.{digits}f}" if np.isfinite(at) else "-"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def fitted(sizes: np.ndarray, values: np.ndarray, least: float) -> tuple[float, float]:
    """Return the exponent, and the value at UK Biobank's size by the last size and that exponent, or ``least``.

    Of fewer than three sizes there is neither.
    """
    if len(sizes) < 3:
        return float("nan"), float("nan")
    slope = float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-2)), 1)[0])
    return slope, float(values[-1] * (UK_BIOBANK / sizes[-1]) ** max(slope, least))


def draw(table: pd.DataFrame, file: Path) -> None:
    """Draw CPU seconds and memory against the number of subjects, both logarithmic."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator

    figure, panels = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    part = table[(table["rois"] == table["rois"].mode()[0]) & (table["memory_gb"] == table["memory_gb"].max())]
    styles = ["-", "--", ":"]
    for axes, column, words in zip(panels, ("cpu_s", "peak_mb"), ("CPU seconds, one thread", "largest memory (MB)")):
        for i, step in enumerate([name for name in STEPS if name in set(part["step"])]):
            one = part[part["step"] == step].sort_values("subjects")
            look = {"linestyle": styles[i // 10 % 3], "marker": "o" if i % 2 else "s", "color": f"C{i % 10}"}
            axes.loglog(one["subjects"], one[column], label=step, markersize=4, linewidth=1.3, **look)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("subjects")
        axes.set_ylabel(words)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].axhline(1000 * float(part["memory_gb"].max()), color="0.6", linewidth=1, zorder=0)
    panels[1].text(
        part["subjects"].min(), 1030 * float(part["memory_gb"].max()), "--memory-gb", color="0.4", fontsize=8
    )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
