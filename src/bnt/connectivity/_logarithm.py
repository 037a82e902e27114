"""Logarithms of many positive definite matrices, in less time than their eigenvectors take.

LAPACK makes a matrix tridiagonal, A = Q T Q', in double precision, which keeps the smallest eigenvalues. The logarithm
of T needs no eigenvectors: between :data:`LEAST` and 1 a sum of simple fractions equals the logarithm to 1e-9,

    log x = c - sum_p w_p / (x + s_p),

and each inverse (T + s_p)^-1 takes one pass over the diagonal: with the pivots down_k of its factorisation from above,
up_k of that from below, and l_k = -e_k / down_k of the off-diagonal e_k,

    (T + s)^-1_jj = 1 / (down_j + up_j - T_jj - s),    (T + s)^-1_ij = l_i ... l_(j-1) (T + s)^-1_jj  for i < j.

As a product of one number per row and one per column, it is added up for all p by a matrix product. Only Q log(T) Q' is
multiplied in single precision, as which it is returned: the error is about 3e-7 of the norm, whatever the eigenvalues.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg.lapack import dorgqr, dsytrd

LEAST = 2.0**-20  # smallest eigenvalue, as a share of the bound on the largest
TERMS = 26
AT_ONCE = 16  # matrices whose fractions stay in the cache
BLOCK = 20  # rows whose products of l_k are taken from their middle, so that neither they nor their inverses overflow
SMALLEST = 1e-18  # of an off-diagonal element: with 0 in its place, nothing would be left to divide by


@cache
def _fractions() -> tuple[float, np.ndarray, np.ndarray]:
    """Return c, w (P,) and s (P,): shifts in geometric progression, weights by least squares."""
    x, shifts = np.geomspace(LEAST, 1.0, 1000), np.geomspace(0.04 * LEAST, 25.0, TERMS)
    terms = np.concatenate([np.ones((len(x), 1)), -shifts / (x[:, None] + shifts)], axis=1)
    found = np.linalg.lstsq(terms, np.log(x))[0]
    return float(found[0]), found[1:] * shifts, shifts


def logarithms(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms (n, V, V) float32 of symmetric matrices (n, V, V) float64, and which are right (n,).

    Those of matrices with eigenvalues below about a millionth of the largest, or below 0, are not. Only what stands
    on and above the diagonal of the matrices is read, and they are overwritten.
    """
    out, right = np.empty(matrices.shape, dtype=np.float32), np.empty(len(matrices), dtype=bool)
    for start in range(0, len(matrices), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        right[part] = _some(matrices[part], out[part])
    return out, right


def _some(matrices: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the logarithms of a few matrices into ``out``; return which are right."""
    n, v, _ = matrices.shape
    diagonal, beside = np.empty((n, v)), np.empty((n, v - 1))
    turns = np.zeros((n, v, v), dtype=np.float32)
    turns[:, 0, 0] = 1.0
    for k, one in enumerate(matrices):  # LAPACK's columns are our rows: its lower triangle is our upper one
        reflectors, diagonal[k], beside[k], factors, _ = dsytrd(one.T, lower=1, lwork=64 * v, overwrite_a=1)
        turns[k, 1:, 1:] = dorgqr(reflectors[1:, :-1], factors, lwork=64 * v)[0]
    logs, right = _of_tridiagonal(diagonal, beside)
    np.matmul(turns @ logs, turns.transpose(0, 2, 1), out=out)
    return right


def _of_tridiagonal(diagonal: np.ndarray, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the logarithms (n, V, V) float32 of tridiagonal matrices, and which are right (n,)."""
    constant, weights, shifts = _fractions()
    n, v = diagonal.shape
    size = np.abs(np.pad(beside, ((0, 0), (1, 1))))
    most = (diagonal + size[:, 1:] + size[:, :-1]).max(axis=1)  # Gershgorin's bound on the eigenvalues
    e = (beside / most[:, None]).T[:, :, None]  # (V - 1, n, 1)
    e = np.where(np.abs(e) < SMALLEST, SMALLEST, e)
    # One shift more: where all pivots of T - LEAST are positive, no eigenvalue is smaller.
    shifted = (diagonal / most[:, None]).T[:, :, None] + np.append(shifts, -LEAST)  # (V, n, P + 1)
    with np.errstate(all="ignore"):  # of matrices that are not positive definite, and below the diagonal
        down, up = shifted.copy(), shifted.copy()
        squares, step = e * e, np.empty_like(shifted[0])
        for k in range(1, v):
            down[k] -= np.divide(squares[k - 1], down[k - 1], out=step)
            up[-k - 1] -= np.divide(squares[-k], up[-k], out=step)
        right = (down[:, :, -1] > 0).all(axis=0)
        down, up, shifted = down[..., :-1], up[..., :-1], shifted[..., :-1]
        inverse = weights / (down + up - shifted)  # (V, n, P): diagonals of the inverses, weighted
        link = -e / down[:-1]
        found = np.zeros((n, v, v))
        for first in range(0, v, BLOCK):
            middle, end = min(first + BLOCK // 2, v - 1), min(first + BLOCK, v)
            product = np.ones((v - first, n, TERMS))  # of l between the middle and a row, or its inverse
            np.cumprod(link[middle:], axis=0, out=product[middle - first + 1 :])
            before = np.cumprod(link[first:middle][::-1], axis=0)[::-1]
            np.divide(1.0, before, out=product[: middle - first])
            rows = (1.0 / product[: end - first]).transpose(1, 0, 2)  # (n, BLOCK, P)
            found[:, first:end, first:] = rows @ (product * inverse[first:]).transpose(1, 2, 0)
    above = np.triu(found, 1)
    logs = -(above + above.transpose(0, 2, 1)).astype(np.float32)
    found_diagonal = np.diagonal(found, axis1=1, axis2=2)
    logs[:, np.arange(v), np.arange(v)] = constant + np.log(most)[:, None] - found_diagonal
    return logs, right
