"""Com-BrainTF: attention within functional networks first, then between all ROIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.models._bnt import EncoderLayer
from bnt.nn._kernels import attend, feed_forward, split_heads
from bnt.nn._kernels import dropout as drop
from bnt.nn._network import Network, Output, check_connectomes, check_positive, check_probability
from bnt.nn._ocread import RELEASED_OCREAD
from bnt.nn._readouts import Head, create_readout

N_NETWORKS = 8  # the seven of Yeo (2011) and the rest, as published for ABIDE

# -- networks of ROIs ----------------------------------------------------------------------------------


def network_codes(n_rois: int, networks: Sequence[str] | None) -> list[int]:
    """Return the number of each ROI's network, 0 ... N - 1 in the order of the names.

    Without names, eight blocks of consecutive ROIs: enough to count parameters and to measure steps.
    """
    if networks is None:
        n = min(N_NETWORKS, n_rois)
        return [i * n // n_rois for i in range(n_rois)]
    if isinstance(networks, str) or len(networks) != n_rois:
        found = f"the word {networks!r}" if isinstance(networks, str) else f"{len(networks)} names"
        raise BadInput(
            f"networks is {found}, but there are {n_rois} ROIs: give one name per ROI, in their order; "
            "runs also take a column of rois.tsv or a file with one name per line."
        )
    return np.unique(np.asarray(networks, dtype=str), return_inverse=True)[1].tolist()


# -- local transformer ---------------------------------------------------------------------------------


class LocalLayer(EncoderLayer):
    """A Transformer's layer in which a token sees the tokens of its own network only; one set of weights for all.

    All but the attention goes token by token, so that it is computed once for all networks; the attention itself is a
    softmax over the few tokens of a network.
    """

    def forward(  # type: ignore[override]
        self, z: Tensor, sizes: list[int], explain: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Map tokens (B, S, D), sorted by network, of which ``sizes`` says how many belong to each.

        Returns the new ones and, with ``explain``, the attention (B, M, S, S), zero between networks.
        """
        layer = self.self_attn
        packed = F.linear(z, layer.in_proj_weight, layer.in_proj_bias)  # (B, S, 3D)
        mixed = [
            attend(part.contiguous(), layer.num_heads, layer.dropout, self.training) for part in packed.split(sizes, 1)
        ]
        z = self.norm1(z + drop(layer.out_proj(torch.cat(mixed, 1)), self.p, self.training))
        fed = feed_forward(z, self.linear1, self.linear2, self.p, self.training)
        z = self.norm2(z + drop(fed, self.p, self.training))
        return z, self._weights(packed, sizes) if explain else None

    def _weights(self, packed: Tensor, sizes: list[int]) -> Tensor:
        q, k, _ = split_heads(packed, self.self_attn.num_heads)
        scores = (q * q.shape[-1] ** -0.5) @ k.mT  # (B, M, S, S)
        of = torch.arange(len(sizes), device=scores.device).repeat_interleave(torch.tensor(sizes, device=scores.device))
        return scores.masked_fill(of[:, None] != of, float("-inf")).softmax(-1)


# -- the model -----------------------------------------------------------------------------------------


class ComBrainTF(Network):
    """A Transformer layer within each network, one over all ROIs, OCRead, and a small classifier.

    - Each network c has a learned prompt p_c. Local transformer, its weights shared by all networks:
      [p'_c, H_c] = layer([p_c, X_c]), with X_c the connection profiles of the ROIs of c.
    - Global prompt: p = MLP(p'_1 | ... | p'_N), N*V - 512 - V with LeakyReLU after each map.
    - Global transformer: [p', Z] = layer([p, H]), H the rows of all ROIs.
    - OCRead of Z with the hidden MLP and squared projection, K clusters, each to 8 numbers, then 8K - 256 - 32 - C.
      p' is not used further.

    Parameters
    ----------
    networks : sequence of str, optional
        The network of each ROI. A run takes the column ``network`` of the cohort's ``rois.tsv``; the option names
        another column, or a file with one name per line. Without names there are eight blocks of consecutive ROIs:
        enough to count parameters and to measure steps.
    n_heads, ffn, dropout
        Heads, hidden units and dropout of both layers.
    n_clusters : int
        K.

    Notes
    -----
    - Compared with commit d574946 of github.com/ubc-tea/Com-BrainTF at its defaults, V = 200 and its own networks: for
      the same weights no logit differs by more than 1e-6.
    - The published code sorts ROIs by network; here they stay in the cohort's order. Sorting reorders weights and
      changes no answer. It fixes the sizes of eight networks; here there may be any number.
    - Both published layers register an MLP that they never use (2 x 1,844,424 parameters at V = 200). It is left
      out here.
    - ROIs without a network form one together.
    - The published training is this model's in every recipe: Adam, 1e-4 to 1e-5, batches of 64, no mixup, summed loss;
      its 50 epochs are ``--change epochs=50``.

    References
    ----------
    Bannadabhavi A, Lee S, Deng W, Li X (2023). Community-aware transformer for autism prediction in fMRI connectome.
    MICCAI; arXiv:2307.10181.
    """

    small: ClassVar = {"n_clusters": 4, "ffn": 32, "n_heads": 1}
    per_roi: ClassVar = {
        r"^network_of$": {0: "v"},
        r"^prompts$": {1: "v"},
        r"self_attn\.in_proj_weight": {1: "v"},
        r"(out_proj|linear2)\.(weight|bias)": {0: "v"},
        r"linear1\.weight": {1: "v"},
        r"norm\d\.(weight|bias)": {0: "v"},
        r"^prompt\.0\.weight": {1: "kv"},
        r"^prompt\.2\.(weight|bias)": {0: "v"},
        r"readout\.(centres|reduce\.0\.weight)": {1: "v"},
        r"readout\.hidden\.0\.weight": {1: "vv"},
        r"readout\.hidden\.4\.(weight|bias)": {0: "vv"},
    }
    network_of: Tensor

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        networks: Sequence[str] | None = None,
        n_heads: int = 8,
        ffn: int = 1024,
        dropout: float = 0.3,
        n_clusters: int = 8,
    ) -> None:
        super().__init__()
        check_positive(ffn=ffn)
        check_probability("dropout", dropout)
        if n_clusters > n_rois:
            raise BadInput(f"n_clusters is {n_clusters}, more than the {n_rois} ROIs; use at most {n_rois}.")
        self.n_rois = n_rois
        codes = network_codes(n_rois, networks)
        self.n_networks = max(codes) + 1  # N
        self.register_buffer("network_of", torch.tensor(codes))  # (V,)
        self.prompts = nn.Parameter(torch.empty(self.n_networks, n_rois))  # p_c
        nn.init.normal_(self.prompts, std=(2 / (1 + n_rois)) ** 0.5)  # Xavier's, of one row at a time
        self.local = LocalLayer(n_rois, n_heads, ffn, dropout)
        self.prompt = nn.Sequential(
            nn.Linear(self.n_networks * n_rois, 512), nn.LeakyReLU(), nn.Linear(512, n_rois), nn.LeakyReLU()
        )
        self.whole = EncoderLayer(n_rois, n_heads, ffn, dropout)
        self.readout = create_readout("ocread", n_rois, n_rois, n_clusters=n_clusters, **RELEASED_OCREAD)
        self.head = Head(self.readout.out_features, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        n = self.n_networks
        prompts = self.prompts.to(x.dtype).expand(x.shape[0], -1, -1)
        tokens = torch.cat([prompts, x], 1)  # (B, N + V, V)
        of = torch.cat([torch.arange(n, device=x.device), self.network_of])  # a prompt is the first of its network
        order = of.argsort(stable=True)
        local, within = self.local(tokens[:, order], of.bincount(minlength=n).tolist(), explain)
        back = order.argsort()
        local = local[:, back]
        prompt = self.prompt(local[:, :n].flatten(1))[:, None]  # (B, 1, V)
        z, between = self.whole(torch.cat([prompt, local[:, n:]], 1), explain)  # (B, 1 + V, V)
        pooled = self.readout(z[:, 1:])  # (B, 8K)
        attention: tuple[Tensor, ...] = ()
        if within is not None and between is not None:  # of ROIs to ROIs
            attention = (within[..., back, :][..., back][..., n:, n:], between[..., 1:, 1:])
        return Output(self.head(pooled.embedding), None, attention, pooled.assignments if explain else None)
