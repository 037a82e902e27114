"""Simulation of a multi-site cohort of BOLD-like time series with a known class effect.

Everything follows from the seed: each subject has a seed of its own, so the same subject comes out
bit for bit whether the cohort is made in memory or streamed to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import track
from bnt.cohort import Cohort
from bnt.connectivity import connectomes, kind_of
from bnt.errors import BadInput
from bnt.sources._ingest import finished, new_writer
from bnt.sources._simulation_model import (
    EFFECT_PAIRS,
    SEX_PAIRS,
    Population,
    Scanner,
    band_weights,
    module_names,
    module_sizes,
    pair_matrix,
    read_pairs,
)

LEVELS = {"diagnosis": {"0": "control", "1": "patient"}}
DEFAULT_EFFECT = 0.95
_SUBJECTS_AT_ONCE = 64


class Simulation:
    """The plan of a simulated cohort: all tables are known, series are drawn when asked for.

    The parameters are those of :func:`simulate_cohort`.
    """

    def __init__(
        self,
        n_subjects: int = 400,
        n_rois: int = 100,
        n_sites: int = 8,
        effect: float = DEFAULT_EFFECT,
        seed: int = 0,
        n_modules: int = 7,
        n_volumes: int | None = None,
        effect_pairs: Sequence[str | Sequence[object]] | None = None,
        sex_effect: float = DEFAULT_EFFECT,
        male_share: float = 0.85,
    ) -> None:
        if n_sites < 1 or n_subjects < 4 * n_sites:
            raise BadInput(f"{n_subjects} subjects are too few for {n_sites} sites: give at least 4 for each.")
        if not 0.0 < male_share < 1.0:
            raise BadInput(f"male_share is {male_share}: give a share between 0 and 1.")
        if not (np.isfinite(effect) and np.isfinite(sex_effect)):
            raise BadInput(f"The effects {effect} and {sex_effect} must be finite numbers.")
        if seed < 0:
            raise BadInput(f"The seed is {seed}: give 0 or more.")
        sizes = module_sizes(n_rois, n_modules)
        self.names = module_names(n_modules)
        self.pairs = read_pairs(effect_pairs, EFFECT_PAIRS, self.names)
        self.sex_pairs = read_pairs(None, SEX_PAIRS, self.names)
        self.n_rois, self.seed = n_rois, seed
        self.effect, self.sex_effect = effect, sex_effect
        population, sites, people, subjects = np.random.SeedSequence(seed).spawn(4)
        self._population = Population(np.random.default_rng(population), sizes)
        self._scanners = [
            self._population.scanner(np.random.default_rng(one), f"site-{i + 1:02d}", n_volumes)
            for i, one in enumerate(sites.spawn(n_sites))
        ]
        for scanner in self._scanners:
            band_weights(scanner)  # refuses scans that are too short
        self._seeds = subjects.spawn(n_subjects)
        self._site, self.participants = self._people(np.random.default_rng(people), n_subjects, male_share)
        self.rois = pd.DataFrame(
            {
                "roi": np.arange(1, n_rois + 1),
                "label": [f"{name} {i + 1}" for name, size in zip(self.names, sizes) for i in range(size)],
                "network": np.repeat(self.names, sizes),
            }
        )

    def _people(self, rng: np.random.Generator, n: int, male_share: float) -> tuple[np.ndarray, pd.DataFrame]:
        """Draw who is scanned where: (n,) site numbers and the participants table, in the order of sites."""
        counts = _site_sizes(rng, n, len(self._scanners))
        site = np.repeat(np.arange(len(counts)), counts)
        diagnosis = np.concatenate([_balanced(rng, size) for size in counts])
        typical_age = rng.uniform(10, 24, len(counts))
        age = np.clip(typical_age[site] * np.exp(0.25 * rng.standard_normal(n)), 6, 64)
        sex = np.where(rng.random(n) < male_share, "M", "F")
        typical_fd = 0.09 * np.exp(0.3 * rng.standard_normal(len(counts)))
        mean_fd = np.clip(typical_fd[site] * np.exp(0.65 * rng.standard_normal(n)), 0.02, 3.0)
        width = max(4, len(str(n)))
        table = pd.DataFrame(
            {
                "participant_id": [f"sub-{i + 1:0{width}d}" for i in range(n)],
                "site": [self._scanners[k].name for k in site],
                "n_volumes": [self._scanners[k].n_volumes for k in site],
                "diagnosis": diagnosis,
                "age": np.round(age, 2),
                "sex": sex,
                "mean_fd": np.round(mean_fd, 4),
                "repetition_time": [self._scanners[k].repetition_time for k in site],
            }
        )
        return site, table

    def __len__(self) -> int:
        return len(self._seeds)

    @property
    def facts(self) -> dict[str, Any]:
        """What is planted and how to make the cohort again; kept as the cohort's ``source``."""
        return {
            "name": "simulation",
            "seed": self.seed,
            "effect": self.effect,
            "effect_pairs": [[a, b] for a, b, _ in self.pairs],
            "effect_directions": [d for _, _, d in self.pairs],
            "sex_effect": self.sex_effect,
            "sex_pairs": [[a, b] for a, b, _ in self.sex_pairs],
            "sex_directions": [d for _, _, d in self.sex_pairs],
            "modules": self.names,
        }

    def series(self, row: int) -> np.ndarray:
        """Draw the series of one subject, (volumes, V) float32."""
        person = self.participants.iloc[row]
        scanner: Scanner = self._scanners[self._site[row]]
        by_class = self.effect * (person["diagnosis"] - 0.5) * pair_matrix(self.pairs, self.names)
        by_sex = self.sex_effect * ((person["sex"] == "M") - 0.5) * pair_matrix(self.sex_pairs, self.names)
        by_age = -0.3 * np.log(person["age"] / 16.0) * np.eye(len(self.names))
        return self._population.series(self._seeds[row], scanner, float(person["mean_fd"]), by_class + by_sex + by_age)

    def batches(self, kind: str) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield the connectomes and series of some subjects at a time, in order."""
        for start in track(range(0, len(self), _SUBJECTS_AT_ONCE), "Simulating"):
            series = [self.series(i) for i in range(start, min(start + _SUBJECTS_AT_ONCE, len(self)))]
            yield connectomes(series, kind), series


def _site_sizes(rng: np.random.Generator, n_subjects: int, n_sites: int) -> np.ndarray:
    """Return unequal site sizes, as in ABIDE: a few large sites, many small ones, at least 4 each."""
    weights = np.exp(0.6 * rng.standard_normal(n_sites))
    spare = n_subjects - 4 * n_sites
    share = weights / weights.sum() * spare
    sizes = np.floor(share).astype(int)
    sizes[np.argsort(sizes - share, kind="stable")[: spare - sizes.sum()]] += 1
    return sizes + 4


def _balanced(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return shuffled 0s and 1s of a site: near half and half, both present."""
    positives = int(np.clip(round(size * rng.uniform(0.4, 0.58)), 1, size - 1))
    return rng.permutation(np.arange(size) < positives).astype(int)


def simulate_cohort(
    n_subjects: int = 400,
    n_rois: int = 100,
    n_sites: int = 8,
    effect: float = DEFAULT_EFFECT,
    seed: int = 0,
    n_modules: int = 7,
    n_volumes: int | None = None,
    effect_pairs: Sequence[str | Sequence[object]] | None = None,
    *,
    kind: str = "pearson",
    sex_effect: float = DEFAULT_EFFECT,
    male_share: float = 0.85,
    series: bool = True,
    out: str | Path | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
) -> Cohort:
    """Simulate a multi-site cohort with functional networks, site effects, motion and a known class effect.

    Parameters
    ----------
    n_subjects, n_rois, n_sites : int
    effect : float
        Cohen's d between the classes in the coupling of each affected pair of networks; 0 is no effect. With ABIDE's
        numbers of subjects and ROIs, the default gives a linear SVM about the AUROC that it has on ABIDE.
    seed : int
    n_modules : int
        Number of networks, in ``cohort.rois["network"]``.
    n_volumes : int, optional
        Number of volumes of every scan; by default each site has its own.
    effect_pairs : sequence, optional
        The affected pairs of networks: ``("Default", "Visual")`` or ``"Default:Visual"``. The coupling is weaker in the
        positive class or, with a third part ``+``, stronger. Stored in ``cohort.source["effect_pairs"]``.
    kind : str
        Kind of connectome, see :data:`bnt.connectivity.KINDS`.
    sex_effect : float
        Effect of men against women, in other pairs (``cohort.source["sex_pairs"]``).
    male_share : float
    series : bool
        Whether to store the time series.
    out : path, optional
        Write to this folder, a few subjects at a time, instead of keeping the cohort in memory.
    dtype : {"float32", "float16"}
        Of the connectomes on disk.
    overwrite : bool
        Replace an existing cohort at ``out``.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> cohort
    Cohort(40 subjects, 20 ROIs, 2 sites, pearson, with time series)
    >>> cohort.source["effect_pairs"][0]
    ['Default', 'Default']
    """
    chosen = kind_of(kind)
    plan = Simulation(
        n_subjects, n_rois, n_sites, effect, seed, n_modules, n_volumes, effect_pairs, sex_effect, male_share
    )
    described: dict[str, Any] = {
        "kind": chosen.name,
        "diagonal": chosen.diagonal,
        "atlas": f"simulated-{n_rois}",
        "source": plan.facts,
        "levels": LEVELS,
    }
    writer = new_writer(n_rois, out, dtype, overwrite)
    with writer:
        for edges, drawn in plan.batches(chosen.name):
            writer.append(edges, drawn if series else None)
        writer.finish(plan.participants, plan.rois, **described)
    return finished(writer)
