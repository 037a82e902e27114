"""Linear models for more people than fit into memory: the same problems, solved by passes over features on disk.

A kernel of n people takes n^2 numbers, their features n F. Beyond a bound on memory (:func:`memory_bound`) the features
stay in a file without a name (:class:`~bnt.models.classical._inputs.Streamed`). Up to a few thousand people, kernels of
one set of features are still made from it, block by block, and solved exactly. Beyond, and for several sets of features
together, the problem is solved in its primal form, by Newton's method with conjugate gradients. A step reads the file
once, block by block; products are in single precision, sums over blocks in double. Nothing is approximated but by the
tolerances below and the corner of the hinge, which is rounded, and the rounding extrapolated away. The whole training
set and its inner folds are solved together, in the same passes: each problem has weights of its own, 0 for the subjects
it holds out, and its own means, so that nobody held out reaches a fit.

Chapelle (2007), "Training a support vector machine in the primal".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from scipy.special import expit, logsumexp, softmax

from bnt.models.classical._inputs import Streamed
from bnt.models.classical._solvers import Centring, signs

CORNERS = (1.0, 0.2, 0.04, 0.02)  # half the width over which a hinge is rounded, wide first; its margin is 1
FLATTEST = 1e-3  # of a rounded hinge's curvature: where it has none, a step would have no length
TOLERANCE, ROUGH = 1e-3, 1e-2  # of the gradient's norm, relative to the root of the number of subjects
MOST_STEPS, MOST_PASSES = 30, 400
LEAST_SHARE = 1e-5  # of a subject's squared length, left by centring: below, it is rounding (alone at a site)

Parts = Iterable[tuple[np.ndarray, np.ndarray]] | None


class Design:
    """The centred and scaled features of several problems at once.

    Parameters
    ----------
    views : sequence of Streamed
        Features of the same n subjects.
    by_site : sequence of bool
        The centrings of each view: False subtracts everyone's mean, True that of the subject's site.
    sites : array of str, (n,), or None
    weights : array, (problems, n)
        How much each subject counts in each problem; 0 holds a subject out.
    unit : bool
        Give every subject length 1 in each view and centring, and fit no intercept (``multi-kernel``, whose is the
        mean of the target); otherwise each problem's features are divided by the root of their mean square.
    """

    def __init__(
        self,
        views: Sequence[Streamed],
        by_site: Sequence[bool],
        sites: np.ndarray | None,
        weights: np.ndarray,
        unit: bool = False,
    ) -> None:
        self.views, self.weights = views, weights
        n_problems, self.n = weights.shape
        self.centrings = [[Centring.fit(sites if own else None, w) for w in weights] for own in by_site]
        self.groups = [
            np.stack([c.groups(sites if own else None, self.n) for c in row], axis=1)  # (n, problems)
            for own, row in zip(by_site, self.centrings)
        ]
        self.problem = np.arange(n_problems)
        self.widths = [view.shape[1] for view in views for _ in by_site]
        self.means = self._means()  # of each view and centring: (problems, groups, F) float32, 0 beyond its groups
        squares = self._squares()  # of each view and centring: (n, problems)
        self.scales, self.free = np.ones(n_problems), float(not unit)
        if unit:
            lengths = [np.sqrt(np.where(s > 0, s, np.inf)) for s in squares]
            self.factors = [1.0 / (length * len(squares) ** 0.5) for length in lengths]
        else:
            (square,) = squares
            found = np.einsum("pn,np->p", weights, square) / weights.sum(axis=1)
            self.scales = np.where(found > 0, found, 1.0)
            self.factors = [np.broadcast_to(self.scales**-0.5, square.shape)]

    def _blocks(self) -> Iterator[tuple[slice, list[np.ndarray]]]:
        for rows in self.views[0].slices():
            yield rows, [view.block(rows) for view in self.views]

    def _means(self) -> list[np.ndarray]:
        n_groups = [max(len(c.averaging) for c in row) for row in self.centrings]
        averaging = [np.zeros((len(self.problem), most, self.n), dtype=np.float32) for most in n_groups]
        for row, found in zip(self.centrings, averaging):
            for p, centring in enumerate(row):
                found[p, : len(centring.averaging)] = centring.averaging
        out = [np.zeros((*a.shape[:2], view.shape[1])) for view in self.views for a in averaging]
        for rows, parts in self._blocks():
            for total, part, a in self._pairs(out, parts, averaging):
                total += np.tensordot(a[:, :, rows], part, axes=(2, 0))
        return [total.astype(np.float32) for total in out]

    @staticmethod
    def _pairs(each: Sequence, parts: Sequence, own: Sequence) -> Iterator[tuple]:
        """Yield what belongs to each view and centring, with the view's block and what belongs to the centring."""
        return zip(each, (part for part in parts for _ in own), [*own] * len(parts))

    def _squares(self) -> list[np.ndarray]:
        out = [np.empty((self.n, len(self.problem))) for _ in self.means]
        own = [np.einsum("pgf,pgf->pg", m, m, dtype=np.float64) for m in self.means]
        for rows, parts in self._blocks():
            norms = [np.einsum("nf,nf->n", part, part, dtype=np.float64)[:, None] for part in parts]
            for i, (found, part, groups) in enumerate(self._pairs(out, parts, self.groups)):
                with_means = np.tensordot(part, self.means[i], axes=(1, 2))  # (m, problems, groups)
                at = np.arange(len(part))[:, None], self.problem, groups[rows]
                norm = norms[i // len(self.groups)]
                found[rows] = norm - 2.0 * with_means[at] + own[i][self.problem, groups[rows]]
                found[rows][found[rows] <= LEAST_SHARE * norm] = 0.0
        return out

    # -- passes ------------------------------------------------------------------------------------

    def _split(self, w: np.ndarray) -> list[np.ndarray]:
        return np.split(w, np.cumsum(self.widths)[:-1], axis=2)

    def pass_over(
        self, w: np.ndarray | None, slopes: Callable[[np.ndarray | None, slice], np.ndarray] | None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return X w, (n, P, c), and X^T s of what ``slopes`` says of each block, (P, c, F); None where not asked."""
        n_problems = len(self.problem)
        given = None if w is None else [part.astype(np.float32) for part in self._split(w)]
        shifts = None if w is None else [np.einsum("pgf,pcf->pgc", m, v) for m, v in zip(self.means, self._split(w))]
        found = None if w is None else np.zeros((self.n, n_problems, w.shape[1]))
        sums: list[np.ndarray] = []
        totals: list[np.ndarray] = []
        for rows, parts in self._blocks():
            if given is not None and shifts is not None and found is not None:
                for i, (v, part, groups) in enumerate(self._pairs(given, parts, self.groups)):
                    flat = part @ v.reshape(-1, part.shape[1]).T
                    product = flat.reshape(len(part), n_problems, -1) - shifts[i][self.problem, groups[rows]]
                    found[rows] += product * self.factors[i][rows, :, None]
            if slopes is None:
                continue
            s = slopes(None if found is None else found[rows], rows)  # (m, P, c)
            if not totals:
                totals = [np.zeros((n_problems, s.shape[2], width)) for width in self.widths]
                sums = [np.zeros((*m.shape[:2], s.shape[2])) for m in self.means]
            for i, (total, part, groups) in enumerate(self._pairs(totals, parts, self.groups)):
                scaled = s * self.factors[i][rows, :, None]
                np.add.at(sums[i], (self.problem, groups[rows]), scaled)
                flat = scaled.reshape(len(part), -1).astype(np.float32)
                total += (flat.T @ part).reshape(total.shape)
        for total, mean, by_group in zip(totals, self.means, sums):
            total -= np.einsum("pgc,pgf->pcf", by_group, mean)
        return found, np.concatenate(totals, axis=2) if totals else None


# -- what is minimised -----------------------------------------------------------------------------


class Loss(ABC):
    """A convex loss of decisions z, (m, P, c), of subjects ``rows``."""

    def __init__(self, y: np.ndarray) -> None:
        self.y = y  # (n, P or 1, c)

    @abstractmethod
    def value(self, z: np.ndarray) -> np.ndarray:
        """Return each subject's loss, (n, P)."""

    @abstractmethod
    def slope(self, z: np.ndarray, rows: slice) -> np.ndarray:
        """Return the derivative, (m, P, c)."""

    @abstractmethod
    def curve(self, z: np.ndarray, along: np.ndarray, rows: slice) -> np.ndarray:
        """Return the second derivative times a direction, (m, P, c)."""


class Squared(Loss):
    """Half the squared error."""

    def value(self, z: np.ndarray) -> np.ndarray:
        """Return each subject's loss, (n, P)."""
        return 0.5 * ((z - self.y) ** 2).sum(axis=2)

    def slope(self, z: np.ndarray, rows: slice) -> np.ndarray:
        """Return the derivative, (m, P, c)."""
        return z - self.y[rows]

    def curve(self, z: np.ndarray, along: np.ndarray, rows: slice) -> np.ndarray:
        """Return the second derivative times a direction, (m, P, c)."""
        return along


class Rounded(Loss):
    """Made of hinges with rounded corners; :func:`minimise` starts with wide ones."""

    corner = CORNERS[0]

    def _height(self, u: np.ndarray) -> np.ndarray:
        return np.where(u > self.corner, u, np.maximum(u + self.corner, 0.0) ** 2 / (4 * self.corner))

    def _rise(self, u: np.ndarray) -> np.ndarray:
        return np.clip((u + self.corner) / (2 * self.corner), 0.0, 1.0)

    def _bend(self, u: np.ndarray) -> np.ndarray:
        return np.where(np.abs(u) <= self.corner, 1.0, FLATTEST) / (2 * self.corner)


class Hinge(Rounded):
    """Hinge loss of classes coded +1 and -1."""

    def value(self, z: np.ndarray) -> np.ndarray:
        """Return each subject's loss, (n, P)."""
        return self._height(1.0 - self.y * z).sum(axis=2)

    def slope(self, z: np.ndarray, rows: slice) -> np.ndarray:
        """Return the derivative, (m, P, c)."""
        return -self.y[rows] * self._rise(1.0 - self.y[rows] * z)

    def curve(self, z: np.ndarray, along: np.ndarray, rows: slice) -> np.ndarray:
        """Return the second derivative times a direction, (m, P, c)."""
        return along * self._bend(1.0 - self.y[rows] * z)


class Tube(Rounded):
    """Absolute error beyond a tube of 0.1, of a target whose standard deviation is 1."""

    width = 0.1

    def value(self, z: np.ndarray) -> np.ndarray:
        """Return each subject's loss, (n, P)."""
        return (self._height(z - self.y - self.width) + self._height(self.y - z - self.width)).sum(axis=2)

    def slope(self, z: np.ndarray, rows: slice) -> np.ndarray:
        """Return the derivative, (m, P, c)."""
        return self._rise(z - self.y[rows] - self.width) - self._rise(self.y[rows] - z - self.width)

    def curve(self, z: np.ndarray, along: np.ndarray, rows: slice) -> np.ndarray:
        """Return the second derivative times a direction, (m, P, c)."""
        return along * (self._bend(z - self.y[rows] - self.width) + self._bend(self.y[rows] - z - self.width))


class LogLoss(Loss):
    """Logistic loss of classes coded +1 and -1; with several columns of 0 and 1, multinomial."""

    def value(self, z: np.ndarray) -> np.ndarray:
        """Return each subject's loss, (n, P)."""
        if z.shape[2] == 1:
            return np.logaddexp(0.0, -self.y * z)[:, :, 0]
        return logsumexp(z, axis=2) - (self.y * z).sum(axis=2)

    def slope(self, z: np.ndarray, rows: slice) -> np.ndarray:
        """Return the derivative, (m, P, c)."""
        return -self.y[rows] * expit(-self.y[rows] * z) if z.shape[2] == 1 else softmax(z, axis=2) - self.y[rows]

    def curve(self, z: np.ndarray, along: np.ndarray, rows: slice) -> np.ndarray:
        """Return the second derivative times a direction, (m, P, c)."""
        if z.shape[2] == 1:
            return along * expit(z) * expit(-z)
        p = softmax(z, axis=2)
        return p * (along - (p * along).sum(axis=2, keepdims=True))


# -- Newton's method -------------------------------------------------------------------------------


Vector = tuple[np.ndarray, np.ndarray]  # of w and b
Solved = tuple[np.ndarray, np.ndarray, np.ndarray]  # and of z


def minimise(design: Design, loss: Loss, penalties: np.ndarray) -> Solved:
    """Minimise sum_i weight_i loss(z_i) + penalty / 2 |w|^2 with z = X w + b in every problem.

    Parameters
    ----------
    design : Design
        Of P problems.
    penalties : array, (P,)

    Returns
    -------
    w : array, (P, c, F)
    b : array, (P, c)
        Not penalised; 0 where the design has no free intercept.
    z : array, (n, P, c)
        Decisions of everyone, those held out included.
    """
    n_problems, c = len(design.problem), loss.y.shape[2]
    found = (
        np.zeros((n_problems, c, sum(design.widths))),
        np.zeros((n_problems, c)),
        np.zeros((design.n, n_problems, c)),
    )
    if not isinstance(loss, Rounded):
        return _minimise(design, loss, penalties, found, TOLERANCE)
    for loss.corner in CORNERS:
        before, tolerance = found, ROUGH if loss.corner > CORNERS[-2] else TOLERANCE
        found = _minimise(design, loss, penalties, found, tolerance)
    # Each corner is half as wide as the one before: what is left of its effect is taken away by extrapolation.
    return 2 * found[0] - before[0], 2 * found[1] - before[1], 2 * found[2] - before[2]


def _minimise(design: Design, loss: Loss, penalties: np.ndarray, start: Solved, tolerance: float) -> Solved:
    """Minimise from a start on; the arrays of the start stay as they are."""
    w, b, z = start
    weights, penalty = design.weights.T[:, :, None], penalties[:, None, None]
    first, passes = np.sqrt(design.weights.sum(axis=1) + (penalties**2 * np.einsum("pcf,pcf->p", w, w))), 0
    for _ in range(MOST_STEPS):
        pull = weights * loss.slope(z, slice(None))
        _, back = design.pass_over(None, lambda _, rows: pull[rows])  # noqa: B023 - used at once
        assert back is not None
        gradient, passes = (back + penalty * w, design.free * pull.sum(axis=0)), passes + 1
        norms = np.sqrt(_inner(gradient, gradient))
        open_ = norms > tolerance * first
        if not open_.any() or passes >= MOST_PASSES:
            break
        # A quadratic needs one step, solved well; others are first solved roughly, then better.
        wanted = 0.5 * tolerance * first if isinstance(loss, Squared) else 0.1 * norms
        step, along, used = _newton_step(design, loss, z, gradient, penalties, open_, wanted, MOST_PASSES - passes)
        passes += used
        size = _step_size(loss, design.weights, z, along, w, step[0], penalties, _inner(gradient, step))
        w, b = _plus((w, b), size, step)
        z = z + size[None, :, None] * along
    return w, b, z


def _inner(one: Vector, other: Vector) -> np.ndarray:
    return np.einsum("pcf,pcf->p", one[0], other[0]) + np.einsum("pc,pc->p", one[1], other[1])


def _plus(one: Vector, size: np.ndarray, other: Vector) -> Vector:
    return one[0] + size[:, None, None] * other[0], one[1] + size[:, None] * other[1]


def _newton_step(
    design: Design,
    loss: Loss,
    z: np.ndarray,
    gradient: Vector,
    penalties: np.ndarray,
    open_: np.ndarray,
    wanted: np.ndarray,
    most: int,
) -> tuple[Vector, np.ndarray, int]:
    """Solve Hessian step = -gradient by conjugate gradients; return the step, what it does to z, and the passes."""
    weights = design.weights.T[:, :, None]
    step: Vector = (np.zeros_like(gradient[0]), np.zeros_like(gradient[1]))
    rest: Vector = (-gradient[0], -gradient[1])
    search = rest
    along, square, used = np.zeros_like(z), _inner(rest, rest), 0
    open_ = open_.copy()
    while open_.any() and used < most:
        shift = search[1]

        def slopes(found: np.ndarray | None, rows: slice, shift: np.ndarray = shift) -> np.ndarray:
            assert found is not None
            return weights[rows] * loss.curve(z[rows], found + shift, rows)

        moved, back = design.pass_over(search[0], slopes)
        assert moved is not None
        assert back is not None
        moved += shift
        used += 1
        bent = weights * loss.curve(z, moved, slice(None))
        product: Vector = (back + penalties[:, None, None] * search[0], design.free * bent.sum(axis=0))
        length = np.where(open_, square / np.maximum(_inner(search, product), 1e-300), 0.0)
        step, rest = _plus(step, length, search), _plus(rest, -length, product)
        along += length[None, :, None] * moved
        before, square = square, np.where(open_, _inner(rest, rest), square)
        open_ &= np.sqrt(square) > wanted
        search = _plus(rest, square / np.maximum(before, 1e-300), search)
    return step, along, used


def _step_size(
    loss: Loss,
    weights: np.ndarray,
    z: np.ndarray,
    along: np.ndarray,
    w: np.ndarray,
    step: np.ndarray,
    penalties: np.ndarray,
    downhill: np.ndarray,
) -> np.ndarray:
    """Return how far each problem goes: halved until its loss falls enough; needs no pass."""
    own, mixed, theirs = (np.einsum("pcf,pcf->p", a, b) for a, b in ((w, w), (w, step), (step, step)))

    def total(size: np.ndarray) -> np.ndarray:
        of_w = own + 2 * size * mixed + size**2 * theirs
        return np.einsum("pn,np->p", weights, loss.value(z + size[None, :, None] * along)) + 0.5 * penalties * of_w

    size, start = np.ones(len(penalties)), total(np.zeros(len(penalties)))
    for _ in range(30):
        high = total(size) > start + 1e-4 * size * downhill + 1e-12 * np.abs(start)
        if not high.any():
            break
        size = np.where(high, size / 2, size)
    return size


# -- problems of the classical models --------------------------------------------------------------


def problems(weight: np.ndarray, parts: Parts) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the weights of the whole problem and of each fold, (1 + folds, n), and the rows each fold holds out."""
    rows, rest = [weight], []
    for fitted, held_out in parts or ():
        row = np.zeros_like(weight)
        row[fitted] = weight[fitted]
        rows.append(row)
        rest.append(held_out)
    return np.stack(rows), rest


def held_out_decisions(z: np.ndarray, rest: list[np.ndarray]) -> np.ndarray:
    """Return the whole problem's decisions, (n, c), with those of each fold in place for whom it holds out."""
    decisions = z[:, 0].copy()
    for p, rows in enumerate(rest, start=1):
        decisions[rows] = z[rows, p]
    return decisions


def coded(target: np.ndarray, n_classes: int) -> np.ndarray:
    """Return targets as the losses want them, (n, 1, c): a score, or +1 and -1."""
    return (target[:, None].astype(np.float64) if n_classes == 1 else signs(target, n_classes))[:, None, :]
