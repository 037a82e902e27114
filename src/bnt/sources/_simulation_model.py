"""The generative model behind ``bnt simulate``: the components of a simulated time series.

A series is drawn in the frequency domain, at the frequencies between 0.01 and 0.1 Hz only, as a sum of

- a global signal, whose strength differs between subjects and rises with motion,
- one signal per module; modules are coupled, each subject a little differently (their *coupling*),
- fine structure: components with a fixed map over ROIs, an amplitude of each subject's own, and maps
  that deviate from subject to subject and from site to site,
- a motion artefact with one map and a strength given by the subject's mean framewise displacement,
- noise of each ROI.

The class effect moves the coupling of the chosen module pairs, and nothing else. Its size is
Cohen's d: the difference between the classes in units of the standard deviation between subjects.
A pair of a module with itself means the strength of that module's own signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bnt.errors import BadInput

BAND = (0.01, 0.1)  # Hz
MODULES = ("Default", "Somatomotor", "Visual", "Ventral Attention", "Frontoparietal", "Dorsal Attention", "Limbic")
MODULE_WEIGHTS = (42, 21, 31, 22, 19, 21, 13)  # ROIs of each network in Craddock-200
# What is planted by default, in terms of the positive class and of men: module, module, direction.
EFFECT_PAIRS = (("Default", "Default", -1), ("Somatomotor", "Visual", -1), ("Default", "Ventral Attention", 1))
SEX_PAIRS = (("Frontoparietal", "Frontoparietal", 1), ("Default", "Limbic", -1), ("Dorsal Attention", "Visual", 1))

Pair = tuple[str, str, int]


@dataclass(frozen=True)
class Calibration:
    """Strengths of the parts; chosen so that the defaults look like ABIDE (docs/figures/simulation.png)."""

    global_share: float = 0.235  # of the variance of an ROI
    module_share: float = 0.26
    fine_share: float = 0.42
    noise_share: float = 0.26
    motion_share: float = 0.075  # at the median framewise displacement
    n_fine: int = 12
    global_spread: float = 0.66  # SD between subjects of the log strength
    strength_spread: float = 0.50  # the same for a module's own signal
    coupling_spread: float = 0.40  # SD between subjects of the coupling of two modules
    fine_spread: float = 0.45  # SD between subjects of the log amplitude of a component
    fine_own: float = 0.21  # share of the maps' variance that is the subject's own
    fine_site: float = 0.085  # share of the maps' variance that is the site's own
    site_spread: float = 0.35  # site shifts, in units of the spread between subjects
    base_coupling: float = 0.25  # SD of the coupling over pairs of modules, mean 0
    roi_spread: float = 0.25  # SD over ROIs of how strongly they take part


CALIBRATION = Calibration()


def module_names(n_modules: int) -> list[str]:
    """Return the names of the modules: networks of Yeo et al., then numbers."""
    return [*MODULES[:n_modules], *(f"Module {i}" for i in range(len(MODULES) + 1, n_modules + 1))]


def module_sizes(n_rois: int, n_modules: int) -> np.ndarray:
    """Return the number of ROIs of each module, in the proportions of Craddock-200, at least 2 each."""
    if n_modules < 1 or n_rois < 2 * n_modules:
        raise BadInput(f"{n_rois} ROIs cannot hold {n_modules} modules: give at least one module and 2 ROIs for each.")
    weights = np.array([*MODULE_WEIGHTS[:n_modules], *[20] * max(0, n_modules - len(MODULE_WEIGHTS))], dtype=float)
    share = weights / weights.sum() * (n_rois - 2 * n_modules)
    sizes = np.floor(share).astype(int)
    left = n_rois - 2 * n_modules - sizes.sum()
    sizes[np.argsort(sizes - share, kind="stable")[:left]] += 1  # the largest remainders
    return sizes + 2


def read_pairs(pairs: Sequence[str | Sequence[object]] | None, default: Sequence[Pair], names: list[str]) -> list[Pair]:
    """Return module pairs with their direction, from tuples or from text such as ``Default:Visual:+``.

    A pair without a direction is weaker in the positive class. Of the default, those whose modules
    exist are used.
    """
    if pairs is None:
        return [p for p in default if p[0] in names and p[1] in names]
    known = {name.lower(): name for name in names}
    out: list[Pair] = []
    for pair in pairs:
        parts = [str(p).strip() for p in (pair.split(":") if isinstance(pair, str) else pair)]
        direction = {"-": -1, "-1": -1, "+": 1, "1": 1, "+1": 1}.get(parts[2] if len(parts) == 3 else "-")
        if len(parts) not in (2, 3) or direction is None:
            raise BadInput(f"The module pair {pair!r} is not of the form MODULE:MODULE or MODULE:MODULE:+.")
        lacking = [p for p in parts[:2] if p.lower() not in known]
        if lacking:
            raise BadInput(f"There is no module {lacking[0]!r}: choose from {', '.join(names)}.")
        out.append((known[parts[0].lower()], known[parts[1].lower()], direction))
    return out


def pair_matrix(pairs: Sequence[Pair], names: list[str]) -> np.ndarray:
    """Return (M, M): the direction of the effect at each pair, 0 elsewhere."""
    matrix = np.zeros((len(names), len(names)))
    for a, b, direction in pairs:
        i, j = names.index(a), names.index(b)
        matrix[i, j] = matrix[j, i] = direction
    return matrix


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return a symmetric (n, n) matrix of standard normal entries."""
    upper = np.triu(rng.standard_normal((n, n)))
    return upper + np.triu(upper, 1).T


@dataclass
class Scanner:
    """What all subjects of one site share."""

    name: str
    repetition_time: float  # seconds
    n_volumes: int
    slope: float  # of the spectrum: power falls as frequency to the minus this
    log_global: float
    log_noise: float
    coupling: np.ndarray  # (M, M)
    fine: np.ndarray  # (R, V)


class Population:
    """What all subjects share, and how one subject's series is drawn from it.

    Parameters
    ----------
    sizes : array of int, (M,)
        ROIs of each module; ROIs of one module stand side by side.
    """

    def __init__(self, rng: np.random.Generator, sizes: np.ndarray, calibration: Calibration = CALIBRATION) -> None:
        c = self.c = calibration
        self.module = np.repeat(np.arange(len(sizes)), sizes)  # (V,)
        self.n_rois, self.n_modules = len(self.module), len(sizes)

        def taking_part() -> np.ndarray:
            return np.clip(1 + c.roi_spread * rng.standard_normal(self.n_rois), 0.3, 1.7)

        self.global_map, self.motion_map, self.module_map = taking_part(), taking_part(), taking_part()
        self.fine = rng.standard_normal((c.n_fine, self.n_rois))
        self.coupling = c.base_coupling * _symmetric(rng, self.n_modules)

    def scanner(self, rng: np.random.Generator, name: str, n_volumes: int | None) -> Scanner:
        """Draw a site: its repetition time, its scan length and the shifts its scanner brings."""
        c = self.c
        repetition_time = float(rng.choice([1.5, 2.0, 2.0, 2.0, 2.0, 2.2, 2.5, 3.0]))
        seconds = rng.uniform(240, 480)
        spread = c.site_spread
        return Scanner(
            name=name,
            repetition_time=repetition_time,
            n_volumes=int(n_volumes or max(116, round(seconds / repetition_time))),
            slope=float(rng.uniform(0.3, 0.9)),
            log_global=float(spread * c.global_spread * rng.standard_normal()),
            log_noise=float(0.2 * rng.standard_normal()),
            coupling=spread * c.coupling_spread * _symmetric(rng, self.n_modules),
            fine=rng.standard_normal((c.n_fine, self.n_rois)),
        )

    def series(self, seed: np.random.SeedSequence, scanner: Scanner, mean_fd: float, shift: np.ndarray) -> np.ndarray:
        """Draw one subject's series, (volumes, V) float32.

        Parameters
        ----------
        seed : SeedSequence
            The subject's own: a subject does not depend on those drawn before.
        mean_fd : float
            Mean framewise displacement, millimetres.
        shift : array, (M, M)
            What class, sex and age add to the coupling, in units of its spread.
        """
        rng = np.random.Generator(np.random.SFC64(seed))
        loadings, noise = self._loadings(rng, scanner, mean_fd, shift)
        frequency, weight = band_weights(scanner)
        n_latent, n_bins = len(loadings), len(frequency)
        drawn = rng.standard_normal((2 * n_bins, n_latent + self.n_rois), dtype=np.float32)
        mixed = drawn[:, :n_latent] @ loadings  # (2F, V)
        mixed += noise * drawn[:, n_latent:]
        first = int(round(frequency[0] * scanner.n_volumes * scanner.repetition_time))
        spectrum = np.zeros((self.n_rois, scanner.n_volumes // 2 + 1), dtype=np.complex64)
        spectrum.real[:, first : first + n_bins] = (mixed[:n_bins] * weight[:, None]).T
        spectrum.imag[:, first : first + n_bins] = (mixed[n_bins:] * weight[:, None]).T
        return np.ascontiguousarray(np.fft.irfft(spectrum, n=scanner.n_volumes).T, dtype=np.float32)

    def _loadings(
        self, rng: np.random.Generator, scanner: Scanner, mean_fd: float, shift: np.ndarray
    ) -> tuple[np.ndarray, np.float32]:
        """Return how each latent signal enters each ROI, (latents, V) float32, and the SD of the noise."""
        c, m = self.c, self.n_modules
        own = _symmetric(rng, m) + shift
        strength = c.module_share * np.exp(c.strength_spread * np.diag(own) - c.strength_spread**2 / 2)  # (M,)
        coupling = self.coupling + scanner.coupling + c.coupling_spread * own
        modules = _root_of_correlation(coupling) * np.sqrt(strength)  # (M, M): column a drives module a
        globally = c.global_share * np.exp(
            c.global_spread * rng.standard_normal() + scanner.log_global - c.global_spread**2 / 2
        )
        motion = c.motion_share * min(mean_fd / 0.1, 20.0)
        amplitude = np.exp(c.fine_spread * rng.standard_normal((c.n_fine, 1)) - c.fine_spread**2 / 2)  # (R, 1)
        own_map = rng.standard_normal((c.n_fine, self.n_rois))
        shared = 1.0 - c.fine_own - c.fine_site
        fine = np.sqrt(shared) * self.fine + np.sqrt(c.fine_site) * scanner.fine + np.sqrt(c.fine_own) * own_map
        loadings = np.concatenate(
            [
                np.sqrt(globally) * self.global_map[None],
                np.sqrt(motion) * self.motion_map[None],
                modules[:, self.module] * self.module_map,
                np.sqrt(c.fine_share / c.n_fine) * amplitude * fine,
            ]
        )
        noise = np.sqrt(c.noise_share * np.exp(scanner.log_noise))
        return loadings.astype(np.float32), np.float32(noise)


def band_weights(scanner: Scanner) -> tuple[np.ndarray, np.ndarray]:
    """Return the frequencies of a scan inside the band, and the weights that give a series variance 1."""
    frequency = np.fft.rfftfreq(scanner.n_volumes, scanner.repetition_time)
    frequency = frequency[(frequency >= BAND[0]) & (frequency <= BAND[1])]
    if len(frequency) < 3:
        raise BadInput(
            f"{scanner.n_volumes} volumes of {scanner.repetition_time:g} s hold {len(frequency)} frequencies "
            "between 0.01 and 0.1 Hz: ask for more volumes."
        )
    power = frequency**-scanner.slope
    weight = np.sqrt(power / power.sum()) * scanner.n_volumes / 2
    return frequency, weight.astype(np.float32)


def _root_of_correlation(coupling: np.ndarray) -> np.ndarray:
    """Return (M, M) with columns of norm 1 whose inner products are the coupling, made possible.

    Couplings drawn at random need not be the correlations of anything: negative eigenvalues are
    raised to a small one, and the diagonal is brought back to 1.
    """
    matrix = np.tanh(coupling)
    np.fill_diagonal(matrix, 1.0)
    values, vectors = np.linalg.eigh(matrix)
    root = np.sqrt(np.maximum(values, 0.02))[:, None] * vectors.T  # columns: modules
    return root / np.linalg.norm(root, axis=0)
