"""The command learning-curve: how a score grows with the number of people, or of sites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bnt.cli._options import (
    Around,
    Machine,
    Splits,
    Target,
    Training,
    carry_out,
    print_failures,
    say_task,
    study_settings,
)


@dataclass(frozen=True)
class LearningCurve:
    """Draw score against the number of training people, and estimate how many a target score would need.

    Every split is trained on shares of its training part; validation and test people stay the same. A curve
    a - b n^-c is fitted. Reading it far beyond the people you have is extrapolation, and its interval says so.
    With --sites each site is left out once and tested by models that were trained on so many of the other sites.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study: curve.csv, curve.md, curve.png and curve.pdf."""
    model: tuple[str, ...] = ("linear-ensemble",)
    """Models of `bnt models`, each with options if need be."""
    fractions: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Shares of the training part."""
    sites: tuple[int, ...] = ()
    """Numbers of training sites, for example 2 4 8 16, in place of fractions."""
    aim: float | None = None
    """The score whose sample size is estimated, for example 0.75 (AUROC, or r of a score)."""
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits()
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    around: Annotated[Around, tyro.conf.arg(name="")] = Around()
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Run the shares, fit the curve and print the table."""
        from bnt.cli._parsing import parse_variant
        from bnt.cohort import load_cohort
        from bnt.cohort._files import write_atomic
        from bnt.errors import BadInput
        from bnt.models import expand_models
        from bnt.plotting import save_figure
        from bnt.plotting._charts import sample_size_curve
        from bnt.studies import Study, fit_power_law, run_table
        from bnt.studies._sample_size import (
            curve_table,
            fewer_sites,
            people_needed,
            share_name,
            sites_name,
            thinned_splits,
        )

        if any(not 0 < fraction <= 1 for fraction in self.fractions):
            raise BadInput("fractions must be above 0 and at most 1.", "fractions")
        if self.sites and self.aim is not None:
            raise BadInput("aim is estimated from numbers of people: leave sites out.", "aim")
        cohort = load_cohort(self.cohort)
        target, training, splitting = self.target, self.training, self.splitting
        words = expand_models(self.model, series=cohort.timeseries is not None)
        around = self.around.adjustments()
        variants = [parse_variant(word, training.recipe, training.changes(), around) for word in words]
        if self.sites:
            splits = fewer_sites(cohort, target.label, self.sites, seed=splitting.split_seed)
        else:
            splits = thinned_splits(
                cohort,
                target.label,
                splitting.protocol,
                self.fractions,
                n_splits=splitting.splits,
                seed=splitting.split_seed,
            )
        say_task(cohort, target)
        settings = study_settings(target, splitting, self.machine)
        study = Study(self.out, cohort, target.label, variants, splits, **settings)
        failures = carry_out(study, self.machine)
        runs = run_table(self.out)
        if runs.empty:
            return print_failures(failures)
        metric = "auroc" if "auroc" in runs else "r"
        sizes, ending = (self.sites, sites_name) if self.sites else (self.fractions, share_name)
        table = curve_table(runs, sizes, metric, ending)
        laws, said = {}, []
        for name, mine in runs.groupby("variant", sort=False) if not self.sites else ():
            law = fit_power_law(mine["n_train"].to_numpy(), mine[metric].to_numpy())
            laws[str(name)] = law
            line = f"{name}: {law.limit:.3f} - {law.scale:.3g} n^-{law.exponent:.2f}"
            if self.aim is not None:
                n, low, high = people_needed(mine, metric, self.aim)
                line += f"; {metric} {self.aim:g} needs {_people(n)} training people [{_people(low)}, {_people(high)}]"
            said.append(line)
        shown = table.rename(columns={metric: f"{metric}_mean"}).round({"n_train": 0}).round(4)
        columns = list(shown.columns)
        rows = ["| " + " | ".join(map(str, row)) + " |" for row in [columns, ["---"] * len(columns), *shown.to_numpy()]]
        text = "\n".join([f"# Learning curve, {target.label}", "", *rows, "", *said, ""])
        write_atomic(self.out / "curve.csv", table.to_csv(index=False))
        write_atomic(self.out / "curve.md", text)
        figure = sample_size_curve(table, metric, {name: law.score for name, law in laws.items()}, self.aim)
        for kind in ("png", "pdf"):
            save_figure(figure, self.out / f"curve.{kind}")
        print(text)
        print(f"Written: {self.out}/curve.csv, curve.md, curve.png, curve.pdf")
        return print_failures(failures)


def _people(n: float) -> str:
    if n != n:
        return "unknown"
    return "more than 100,000" if n > 1e5 else f"{n:,.0f}"
