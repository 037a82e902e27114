"""BolT: Transformer blocks on overlapping windows of a scan, whose volumes are fused after each block."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._kernels import dropout
from bnt.nn._network import (
    Network,
    Output,
    check_connectomes,
    check_positive,
    check_probability,
    check_whole_series,
    volume_mask,
)

# -- fused window attention ----------------------------------------------------------------------------


class WindowAttention(nn.Module):
    """FW-MSA: queries are the class token and the W volumes of a window; keys, the token and R >= W volumes around it.

    Tokens are projected once each and windows are cut from their projections, where the published code projects every
    window's copies.

    Parameters
    ----------
    width : int
        V, the length of a token.
    window, reach, shift : int
        W, R, and how many volumes lie between the starts of two windows.
    n_heads, head : int
        Heads and their width.
    p : float
        Dropout of the attention weights, and of the result.
    """

    def __init__(self, width: int, window: int, reach: int, shift: int, n_heads: int, head: int, p: float) -> None:
        super().__init__()
        self.window, self.reach, self.shift, self.n_heads, self.p = window, reach, shift, n_heads, p
        self.fringe = (reach - window) // 2  # volumes before and after the window
        self.q, self.kv = nn.Linear(width, n_heads * head), nn.Linear(width, 2 * n_heads * head)
        self.proj = nn.Linear(n_heads * head, width)
        self.distances = nn.Parameter(torch.empty(2 * (window - 1 + self.fringe) + 1, n_heads))
        self.token_to_volumes = nn.Parameter(torch.empty(1, n_heads, 1, reach))
        self.volumes_to_token = nn.Parameter(torch.empty(1, n_heads, window, 1))
        self.token_to_token = nn.Parameter(torch.empty(1, n_heads, 1, 1))
        for bias in (self.distances, self.token_to_volumes, self.volumes_to_token, self.token_to_token):
            nn.init.trunc_normal_(bias, std=0.02)

    def _biases(self) -> Tensor:
        """Return what is added to the scores, (heads, 1 + W, 1 + R)."""
        here = torch.arange(self.window, device=self.distances.device)
        there = torch.arange(self.reach, device=here.device)
        volumes = self.distances.T[:, here[:, None] - there + self.reach - 1]  # (heads, W, R)
        token = torch.cat([self.token_to_token, self.token_to_volumes], 3)[0]  # (heads, 1, 1 + R)
        return torch.cat([token, torch.cat([self.volumes_to_token[0], volumes], 2)], 1)

    def _cut(self, projected: Tensor, tokens: Tensor, size: int) -> Tensor:
        """Return windows of volumes (B, Z, n), each behind its token (B, N, n), as (B, N, heads, 1 + size, d)."""
        cut = projected.unfold(1, size, self.shift).transpose(2, 3)  # (B, N, size, n)
        return torch.cat([tokens[:, :, None], cut], 2).unflatten(3, (self.n_heads, -1)).transpose(2, 3)

    def forward(
        self, volumes: Tensor, tokens: Tensor, around: Tensor, hidden: Tensor, tokens_only: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Attend from each window to what is around it.

        Parameters
        ----------
        volumes : Tensor, (B, Z, V)
            Normalised.
        tokens : Tensor, (B, N, V)
            One class token per window, normalised.
        around : Tensor, (V,)
            What is found before the first volume and after the last one.
        hidden : Tensor of bool, (B, N, R) or (1, N, R)
            The volumes that each window must not see.
        tokens_only : bool
            Whether volumes ask nothing.

        Returns
        -------
        volumes : Tensor, (B, N, W, V); (B, N, 0, V) for ``tokens_only``
        tokens : Tensor, (B, N, V)
        """
        kv = self.kv(volumes)  # (B, Z, 2 n)
        if self.fringe:
            outside = self.kv(around).expand(len(kv), self.fringe, -1)
            kv = torch.cat([outside, kv, outside], 1)
        if tokens_only:
            out = dropout(self.proj(self._mixed_by_tokens(tokens, kv, hidden)), self.p, self.training)
            return volumes[:, None, :0].expand(-1, tokens.shape[1], -1, -1), out
        q = self._cut(self.q(volumes), self.q(tokens), self.window)
        k, v = (
            self._cut(part, token, self.reach) for part, token in zip(kv.chunk(2, -1), self.kv(tokens).chunk(2, -1))
        )  # (B, N, heads, 1 + R, d)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT + self._biases()  # (B, N, heads, 1 + W, 1 + R)
        if self.fringe:
            unseen = F.pad(hidden, (1, 0))[:, :, None, None]  # the token is always seen
            scores = scores.masked_fill(unseen, torch.finfo(scores.dtype).min)
        mixed = dropout(scores.softmax(-1), self.p, self.training) @ v  # (B, N, heads, 1 + W, d)
        out = dropout(self.proj(mixed.transpose(2, 3).flatten(3)), self.p, self.training)
        return out[:, :, 1:], out[:, :, 0]

    def _mixed_by_tokens(self, tokens: Tensor, kv: Tensor, hidden: Tensor) -> Tensor:
        """Return the mean values (B, N, n) that tokens (B, N, V) see, of keys and values (B, Z + 2 fringe, 2 n).

        With one query per window, cutting out the keys of each window takes longer than all products of tokens and
        volumes, of which those beyond the reach are left out.
        """
        q, own_k, own_v, k, v = (
            part.unflatten(2, (self.n_heads, -1)).transpose(1, 2)  # (B, heads, N or Z + 2 fringe, d)
            for part in (self.q(tokens), *self.kv(tokens).chunk(2, -1), *kv.chunk(2, -1))
        )
        q = q * q.shape[-1] ** -0.5
        starts = self.shift * torch.arange(tokens.shape[1], device=kv.device)
        place = torch.arange(kv.shape[1], device=kv.device) - starts[:, None]  # of a volume in a window
        within = place.clamp(0, self.reach - 1)
        unseen = (place != within) | hidden.gather(2, within.expand(len(hidden), -1, -1))  # (B or 1, N, Z + 2 fringe)
        scores = q @ k.mT + self.token_to_volumes[0, :, 0][:, within]
        scores = scores.masked_fill(unseen[:, None], torch.finfo(scores.dtype).min)
        own = (q * own_k).sum(-1, keepdim=True) + self.token_to_token
        weights = dropout(torch.cat([own, scores], 3).softmax(-1), self.p, self.training)
        mixed = weights[..., :1] * own_v + weights[..., 1:] @ v
        return mixed.transpose(1, 2).flatten(2)


class FusedWindowBlock(nn.Module):
    """Pre-norm attention in windows, the mean of each volume over its windows, and a feed-forward network.

    Parameters
    ----------
    width, window, reach, shift, n_heads, head, p
        See :class:`WindowAttention`; ``p`` is also the dropout of the feed-forward network.
    """

    def __init__(self, width: int, window: int, reach: int, shift: int, n_heads: int, head: int, p: float) -> None:
        super().__init__()
        self.attention = WindowAttention(width, window, reach, shift, n_heads, head, p)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear1, self.linear2 = nn.Linear(width, width), nn.Linear(width, width)
        self.p = p

    def _feed_forward(self, z: Tensor) -> Tensor:
        return z + self.linear2(dropout(F.gelu(self.linear1(self.norm2(z))), self.p, self.training))

    def forward(
        self, z: Tensor, tokens: Tensor, lengths: Tensor, windows: Tensor, see_after: bool, is_last: bool
    ) -> tuple[Tensor, Tensor]:
        """Return volumes (B, Z, V) and tokens (B, N, V) after the block.

        Parameters
        ----------
        z : Tensor, (B, Z, V)
            Volumes; zeros after the ``lengths`` (B,) of each scan.
        tokens : Tensor, (B, N, V)
        lengths : Tensor of int, (B,)
        windows : Tensor of bool, (B, N)
            Which windows are a scan's.
        see_after : bool
            Whether what is after the last volume is attended to.
        is_last : bool
            Whether nobody reads the volumes afterwards: they are returned as they are.
        """
        attention = self.attention
        starts = attention.shift * torch.arange(tokens.shape[1], device=z.device)  # (N,)
        places = starts[:, None] + torch.arange(attention.reach, device=z.device) - attention.fringe  # (N, R)
        hidden = (places < 0)[None] if see_after else (places < 0) | (places >= lengths[:, None, None])
        moved, told = attention(self.norm1(z), self.norm1(tokens), self.norm1.bias, hidden, is_last)
        tokens = self._feed_forward(tokens + told)
        if is_last:
            return z, tokens

        # Fusion: the mean of a volume over the windows of the scan that contain it.
        within = (starts[:, None] + torch.arange(attention.window, device=z.device)).flatten()  # (N W,)
        shares = windows.to(z.dtype)[:, :, None].expand(-1, -1, attention.window).flatten(1)  # (B, N W)
        counts = z.new_zeros(z.shape[:2]).index_add(1, within, shares)  # (B, Z)
        total = torch.zeros_like(z).index_add(1, within, moved.flatten(1, 2) * shares[..., None])
        z = self._feed_forward(z + total / counts.clamp_min(1)[..., None])
        return z * (counts > 0)[..., None], tokens


# -- the model -----------------------------------------------------------------------------------------


class BolT(Network):
    """Four blocks of fused window attention, the class tokens of all windows averaged.

    A volume s_t (V,) is a token. Every window of W volumes has its own class token; all start with the same values. In
    block l = 0 ... L-1 a window attends to its own W volumes and to ``f_l = ceil(2 W l fringe (1 - shift)) / 2`` more
    on either side:

    - ``scores = q k^T / sqrt(d) + bias`` (distance in time; from token to volume and back; token to itself), softmax,
      dropout,
    - volumes become the mean of what their windows computed of them, plus themselves; then the feed-forward network,
    - tokens become what their own window computed of them, plus themselves; then the same feed-forward network.

    ``logits = W_c 1/N sum_i LayerNorm(token_i) + b``, over the N = (T - W) / s + 1 windows, rounded down, that fit
    into T volumes; what is left after the last window is not read. With labels the loss has ``consistency`` times the
    mean square of LayerNorm(token_i) - mean_i LayerNorm(token_i).

    Scans of different lengths are padded. No window attends to padding, and windows that contain padding are left out
    of every mean, so the prediction for a scan does not depend on the other scans of its batch. Connectomes are not
    read.

    Parameters
    ----------
    crop : int
        Volumes of a random piece of each scan that a training step reads; 0 is the whole scan. Evaluation reads whole
        scans.
    n_layers, n_heads, head : int
        L, the heads of each block and their width d.
    window : int
        W.
    shift, fringe : float
        Starts of windows are ``s = int(shift W)`` volumes apart; how far the attention reaches, see above.
    dropout : float
        Probability, of attention weights, of what attention returns and in the feed-forward network.
    consistency : float
        Weight of the loss of the tokens.
    released : bool
        The published mask, which hides what is before the first volume and not what is after the last one.

    Notes
    -----
    - Compared with the published code (icon-lab/BolT, commit f7c713f) with the same weights and ``released=True``, on
      20 to 316 volumes of 40, 53 and 200 ROIs, each scan alone there and all together, padded, here: logits differ by
      at most 2.7e-7, the loss of the tokens by 1.4e-9.
    - ``released=True``: the mask of what lies after a scan is made under a condition that never holds. Windows near
      the end attend to up to 72 volumes of zeros. The default hides them like those before the scan.
    - The published model has a LayerNorm of its input that it does not use, 2 V parameters; left out. Its last block
      computes volumes that nobody reads; here only the tokens are, and two biases of that block are not trained, as
      there.
    - Each ROI is standardised over its whole scan before pieces are cut, as published.
    - Recipe as published for ABIDE: Adam without weight decay, batches of 32, 20 epochs, mean cross-entropy, no
      mixup, last weights, pieces of 60 volumes. Its one-cycle schedule (2e-4 up to 4e-4 in 30 % of the steps, then
      down to 2e-5) is a linear warm-up from 0 to 4e-4 and a cosine here. HCP was read in pieces of 600 volumes: set
      ``crop=600``.

    References
    ----------
    Bedel HA, Sivgin I, Dalmaz O, Dar SUH, Cukur T (2023). BolT: fused window transformers for fMRI time series
    analysis. Medical Image Analysis 88, 102841.
    """

    needs_series: ClassVar = True
    whole_series: bool = True
    reads_connectomes: bool = False
    small: ClassVar = {"crop": 24, "n_layers": 2, "n_heads": 2, "head": 8, "window": 10}
    per_roi: ClassVar = {
        r"^token$": {2: "v"},
        r"(q|kv)\.weight": {1: "v"},
        r"proj\.(weight|bias)": {0: "v"},
        r"norm\d?\.(weight|bias)": {0: "v"},
        r"linear\d\.bias": {0: "v"},
        r"linear\d\.weight": {0: "v", 1: "v"},
        r"^last\.weight": {1: "v"},
    }

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        crop: int = 60,
        n_layers: int = 4,
        n_heads: int = 36,
        head: int = 20,
        window: int = 20,
        shift: float = 0.4,
        fringe: float = 2.0,
        dropout: float = 0.1,
        consistency: float = 1.0,
        released: bool = False,
    ) -> None:
        super().__init__()
        check_positive(n_layers=n_layers, n_heads=n_heads, head=head, window=window)
        check_probability("dropout", dropout)
        self.n_rois, self.crop, self.window, self.shift = n_rois, crop, window, int(window * shift)
        if crop and crop < window:
            raise BadInput(
                f"crop is {crop} and window {window}; a piece holds one window at least, and 0 is the whole scan."
            )
        if not 0 < self.shift <= window:
            raise BadInput(f"shift is {shift}, {self.shift} of {window} volumes; give a share from 1/{window} to 1.")
        self.consistency, self.released = consistency, released
        reaches = [window + math.ceil(window * 2 * i * fringe * (1 - shift)) for i in range(n_layers)]
        reaches = [reach + (reach - window) % 2 for reach in reaches]  # as many before the window as after it
        self.token = nn.Parameter(torch.randn(1, 1, n_rois))
        self.blocks = nn.ModuleList(
            FusedWindowBlock(n_rois, window, reach, self.shift, n_heads, head, dropout) for reach in reaches
        )
        self.norm = nn.LayerNorm(n_rois)
        self.last = nn.Linear(n_rois, n_classes)

    def forward(
        self,
        x: Tensor,
        series: Tensor | None = None,
        target: Tensor | None = None,
        explain: bool = False,
        lengths: Tensor | None = None,
    ) -> Output:
        """Answer for series (B, T, V), of each scan its first ``lengths``; see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        z, lengths = check_whole_series(series, lengths, x.shape[0], self.n_rois)
        if int(lengths.min()) < self.window:
            raise BadInput(f"A scan has {int(lengths.min())} volumes and the windows {self.window}: set window.")
        n_windows = (lengths - self.window).div(self.shift, rounding_mode="floor") + 1  # (B,)
        lengths = self.window + self.shift * (n_windows - 1)  # what is left after the last window is not read
        longest = int(lengths.max())
        z = z[:, :longest] * volume_mask(lengths, longest)[..., None]  # (B, Z, V)
        windows = volume_mask(n_windows, int(n_windows.max()))  # (B, N)
        tokens = self.token.expand(*windows.shape, -1)  # (B, N, V)
        for i, block in enumerate(self.blocks, start=1):
            z, tokens = block(z, tokens, lengths, windows, self.released, i == len(self.blocks))
        tokens = self.norm(tokens)
        weights = windows[..., None] / n_windows[:, None, None]  # (B, N, 1)
        mean = (weights * tokens).sum(1)  # (B, V)
        loss = None
        if target is not None and self.consistency:
            apart = (tokens - mean[:, None]).square().mean(2)[windows]
            loss = self.consistency * apart.mean()
        return Output(self.last(mean), loss)
