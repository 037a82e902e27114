"""The commands models, bench, reproduce and theory. Each class is one command; its fields are the options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bnt.bench import BENCHMARKS, BenchSettings
from bnt.cli._options import Machine, Settings, Splitting


@dataclass(frozen=True)
class Models:
    """List models; with a model's name, show its options."""

    model: tyro.conf.Positional[str] = ""
    """Show this model's options, and where it departs from its paper."""
    filter: str = ""
    """List only these: a pattern ("bnt*") or a group (paper, classical, series, 2023+)."""
    rois: int = 200
    """V, for the numbers of parameters."""
    parameters: bool = True
    """Count parameters (imports torch)."""
    csv: Path | None = None
    """Also write the table to this file, with the sizes at V = 200 and V = 360."""
    new: Path | None = None
    """Write a model of your own to fill in to this new file, such as my_model.py."""

    def run(self) -> None:
        """Print the catalogue, or one model; or write a template."""
        from bnt.cli._options import print_table
        from bnt.models import count_parameters, expand_models, find_entry
        from bnt.models._registry import in_catalog, installed_models, package_of

        if self.new is not None:
            write_template(self.new)
            return
        if self.model:
            describe_model(self.model, self.rois)
            return
        size = f"parameters (V={self.rois})"
        print_table(
            [
                {
                    "model": entry.name,
                    "family": entry.family,
                    size: count_parameters(entry.name, self.rois)
                    if self.parameters and entry.trains_in_epochs
                    else None,
                    "needs": "time series" if entry.needs_series else "",
                    "paper": entry.paper,
                    "description": entry.summary,
                }
                for entry in map(find_entry, expand_models([self.filter or "all"]))
            ]
        )
        for name, point in installed_models().items():
            hidden = "; bnt's own model of this name is used" if in_catalog(name) else f"; bnt models {name} shows it"
            print(f"{name}: of the installed package {package_of(point)}{hidden}")
        if self.csv is not None:
            write_summary(self.csv)


def write_template(path: Path) -> None:
    """Write a template of a model that runs as it is, and print how to run it."""
    from importlib.resources import files

    from bnt.cohort._files import write_atomic
    from bnt.errors import BadInput

    if path.suffix != ".py" or not path.stem.isidentifier():
        raise BadInput(f"{path} is not the name of a Python file: give a name such as my_model.py.", "new")
    if path.exists():
        raise BadInput(f"{path} exists already: give another name.", "new")
    if not path.parent.is_dir():
        raise BadInput(f"There is no folder {path.parent}: make it first.", "new")
    template = files("bnt.models").joinpath("template.txt").read_text(encoding="utf-8")
    write_atomic(path, template.replace("my_model.py", path.name))
    print(f"{path} is a model that runs as it is. Change it, and compare it:")
    print(f"  bnt compare COHORT --models {path}:MyModel svm --out study")


def write_summary(path: Path) -> None:
    """Write the catalogue with the sizes at the paper's two atlases (V = 200 and V = 360)."""
    import pandas as pd

    from bnt.cohort._files import write_atomic
    from bnt.models import count_parameters
    from bnt.models._catalog import CATALOG

    table = pd.DataFrame(
        [
            {
                "model": entry.name,
                "family": entry.family,
                **{f"n_parameters_{v}": count_parameters(entry.name, v) for v in (200, 360) if entry.trains_in_epochs},
                "reads": "connectome, series" if entry.needs_series else "connectome",
                "of": entry.paper,
                "what": entry.summary,
            }
            for entry in CATALOG
        ]
    )
    write_atomic(path, table.to_csv(index=False, float_format="%.0f"))  # empty for models without parameters to count


def plain(docstring: str) -> str:
    """Return a docstring without the marks that only documentation pages need."""
    text = re.sub(r":(?:class|func|meth|mod|data|attr):`~?(?:[\w.]*\.)?(\w+)`", r"\1", docstring)
    return re.sub(r":math:`([^`]*)`", r"\1", text).replace("``", "")


def describe_model(name: str, n_rois: int) -> None:
    """Print one model's docstring, options and size."""
    import inspect

    from bnt.models import count_parameters, find_entry, model_options

    entry = find_entry(name)
    print(f"{entry.name}: {entry.summary} ({entry.paper or 'this package'})\n")
    print(plain(inspect.cleandoc(entry.constructor().__doc__ or "")))
    print(
        "\nOptions and defaults (set them in bnt train with --option NAME=VALUE, in bnt compare and bnt tune as "
        f'"{entry.name}:NAME=VALUE,NAME=VALUE"):'
    )
    for option, default in model_options(name).items():
        print(f"  {option} = {default!r}")
    for fields, where in ((entry.training, "every recipe"), (entry.budget, "the recipes default and best")):
        if fields:
            print(f"\nRecipe fields that it changes in {where} (set others with --change NAME=VALUE):")
            print("  " + ", ".join(f"{field} = {value!r}" for field, value in fields.items()))
    if entry.trains_in_epochs:
        print(f"\n{count_parameters(name, n_rois):,} parameters at V = {n_rois}.")


@dataclass(frozen=True)
class Bench:
    """Measure speed and memory on this machine: reading cohorts, connectivity, training, models, a study.

    Each benchmark prints a table; --csv also writes it. Nothing is checked: the numbers are of this machine, now.
    """

    what: tyro.conf.Positional[Literal["data", "connectivity", "train", "models", "study", "all"]] = "all"
    """Which benchmark."""
    settings: Annotated[BenchSettings, tyro.conf.arg(name="")] = BenchSettings()
    csv: Path | None = None
    """Table to write; with several benchmarks, their names are added to the file's."""

    def run(self) -> None:
        """Run the benchmarks and print their tables."""
        import pandas as pd

        from bnt._words import say
        from bnt.bench import run_benchmark
        from bnt.cli._options import print_table
        from bnt.cohort._files import writable, write_atomic

        names = BENCHMARKS if self.what == "all" else (self.what,)
        for name in names:
            say(f"Benchmark: {name}")
            rows = run_benchmark(name, self.settings)
            print_table(rows)
            if self.csv is not None:
                path = self.csv
                if len(names) > 1:
                    path = path.with_name(f"{path.stem}-{name}{path.suffix}")
                with writable(path, "csv"):
                    write_atomic(path, pd.DataFrame(rows).to_csv(index=False))


What = Literal[
    "table1",
    "table2",
    "figure3a",
    "figure3b",
    "figure4",
    "curves",
    "features",
    "learning-curve",
    "runtime",
    "complexity",
    "parameters",
    "difference",
    "theory",
    "all",
]


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of the paper: a CSV, a Markdown table of printed numbers beside ours, and a figure.

    It says how long it will take before it starts. After an interruption the same command resumes where it stopped;
    runtime, complexity, parameters and theory, which train nothing, start again.
    """

    what: Annotated[What, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
    """table1 table2 figure3a figure3b figure4 curves features learning-curve runtime complexity parameters difference
    theory, or all (each in a folder of its own)."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study."""
    preset: Literal["quick", "standard", "full"] = "standard"
    """quick: 2 splits, 8 epochs. standard: 5 splits, our recipe, at most 40 epochs per network (more of small cohorts),
    stopped after 10 without a better smoothed validation AUROC. full: 20 splits, the paper's recipe, 200 epochs."""
    splits: int | None = None
    """Number of splits, in place of the preset's."""
    epochs: int | None = None
    """Most epochs, in place of the preset's."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict."""
    only: tuple[str, ...] = ()
    """Only these rows of a table, by model or variant, for example fbnetgen fbnetgen-released svm."""
    model: Literal["bnt", "bnt-released"] = "bnt"
    """The model of figure3a, figure3b, figure4 and difference: as in the equations, or as in the authors' code."""
    change: Settings = ()
    """Fields of the recipe to change, for example batch_size=64."""
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    """Numbers of ROIs at which complexity is measured."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of training; scores are averaged over them within a split."""
    splitting: Annotated[Splitting, tyro.conf.arg(name="")] = Splitting()
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Reproduce and print the table."""
        from bnt._words import say
        from bnt.cli._options import Board, refuse_nested
        from bnt.cli._parsing import parse_settings, typed
        from bnt.cohort import load_cohort
        from bnt.paper import reproduce
        from bnt.paper._plan import Plan

        machine = self.machine
        refuse_nested(self.splitting)
        plan = Plan(
            cohort=load_cohort(self.cohort),
            out=self.out,
            label=self.label,
            protocol=self.splitting.protocol,
            preset=self.preset,
            splits=self.splits,
            epochs=self.epochs,
            changes=parse_settings(self.change, "--change"),
            model=self.model,
            only=self.only,
            sizes=self.sizes,
            jobs=machine.processes(),
            threads=machine.threads,
            device=machine.device,
            cache_gb=machine.cache_gb,
            memory_gb=machine.bound_gb(),
            engine=machine.engine,
            address=machine.address,
            slurm=machine.slurm_settings(),
            split_seed=self.splitting.split_seed,
            seeds=self.seeds,
            command=typed(),
            watch=Board,
            say=say,
        )
        files = reproduce(self.what, plan)
        for file in files:
            if file.suffix == ".md":
                print(file.read_text())
        print("Written: " + ", ".join(str(file) for file in files))
        failed = [file.parent / "failures.csv" for file in files if file.suffix == ".csv"]
        return 1 if any(file.is_file() for file in failed) else 0


@dataclass(frozen=True)
class Theory:
    """Check the paper's two theorems by quadrature and Monte Carlo, and say in plain words what holds.

    It says how long it will take, and needs no data.
    """

    out: Path | None = None
    """Write theory.csv, theory.md, theory.png and theory.pdf to this folder."""

    def run(self) -> None:
        """Compute, print the short version, and write the page if asked to."""
        from bnt._words import duration, say
        from bnt.paper._theory_report import expected_seconds, find, short, write_theory

        expected = duration(expected_seconds())
        say(f"Quadrature, Monte Carlo and gradient ascent: about {expected} at the speed just measured.")
        found = find() if self.out is None else write_theory(self.out)
        print(short(found))
        if self.out is not None:
            print(f"Page, numbers and figure: {self.out}/theory.md, theory.csv, theory.png, theory.pdf")
