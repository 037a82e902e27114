"""From the time series of a ROI to an embedding: the encoders of FBNetGen and of BrainNetGNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.errors import BadInput


class GruEncoder(nn.Module):
    """FBNetGen's recurrent encoder: windows of a series through four layers of a bidirectional GRU.

    Each ROI's series is cut into T // w windows of w volumes (a remainder at the end is left out). The last states of
    both directions, each having seen all windows, go through dropout and two linear maps.

    Parameters
    ----------
    n_volumes : int
        T.
    window : int
        w, volumes a step reads; also the hidden units of each direction.
    out_features : int
        Length of the embedding.
    released : bool
        Read both directions at the last window, as published: the backward one has seen that window only.
    """

    def __init__(self, n_volumes: int, window: int, out_features: int, released: bool = False) -> None:
        super().__init__()
        if not 1 <= window <= n_volumes:
            raise BadInput(f"window is {window}; series of {n_volumes} volumes allow 1 to {n_volumes}.")
        self.window, self.released = window, released
        self.gru = nn.GRU(window, window, num_layers=4, bidirectional=True, batch_first=True)
        self.map = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(2 * window, window), nn.LeakyReLU(0.2), nn.Linear(window, out_features)
        )
        if released:  # one step from a zero state: these weights multiply zeros only
            self.gru.weight_hh_l3_reverse.requires_grad_(False)

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        whole = t - t % self.window
        steps = series[:, :whole].transpose(1, 2).reshape(b * v, -1, self.window)
        outputs, states = self.gru(steps)  # (B V, T / w, 2 w), (8, B V, w)
        last = outputs[:, -1] if self.released else torch.cat([states[-2], states[-1]], -1)
        return self.map(last).view(b, v, -1)


class ConvEncoder(nn.Module):
    """FBNetGen's convolutional encoder: three convolutions with batch norm and nothing between them.

    Each volume is standardised over its ROIs first, which takes out the mean over the brain at that time.

    Parameters
    ----------
    n_volumes : int
        T.
    window : int
        Kernel of the first convolution.
    out_features : int
        Length of the embedding.
    released : bool
        Changes nothing here.
    """

    def __init__(self, n_volumes: int, window: int, out_features: int, released: bool = False) -> None:
        super().__init__()
        pooled = ((n_volumes - window) // 2 + 1 - 14) // 16
        if window < 1 or pooled < 1:
            raise BadInput(
                f"The cnn encoder with window {window} needs {58 + window} volumes; n_volumes is {n_volumes}."
            )
        self.convolutions = nn.Sequential(
            nn.Conv1d(1, 32, window, stride=2),
            nn.BatchNorm1d(32),
            nn.Conv1d(32, 32, 8),
            nn.BatchNorm1d(32),
            nn.Conv1d(32, 16, 8),
            nn.BatchNorm1d(16),
            nn.MaxPool1d(16),
            nn.Flatten(),
        )
        self.map = nn.Sequential(nn.Linear(16 * pooled, 32), nn.LeakyReLU(0.2), nn.Linear(32, out_features))

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        centred = series - series.mean(2, keepdim=True)
        scaled = centred * (centred.square().mean(2, keepdim=True) + 1e-5).rsqrt()
        return self.map(self.convolutions(scaled.transpose(1, 2).reshape(b * v, 1, t))).view(b, v, -1)


class DeepConvEncoder(nn.Module):
    """BrainNetGNN's encoder: four convolutions with ReLU and a linear map, shared by all ROIs.

    Weights are drawn orthogonal with gain sqrt(2), biases are zero.

    Parameters
    ----------
    n_volumes : int
        T.
    out_features : int
        Length of the embedding.
    """

    def __init__(self, n_volumes: int, out_features: int = 64) -> None:
        super().__init__()
        length = (((n_volumes - 4) // 2 + 1 - 3) - 3) // 2 + 1
        if n_volumes < 14 or length < 1:
            raise BadInput(f"n_volumes is {n_volumes}; the encoder's convolutions need at least 14 volumes.")
        self.layers = nn.Sequential(
            nn.Conv1d(1, 32, 4, stride=2),
            nn.ReLU(),
            nn.Conv1d(32, 64, 4),
            nn.ReLU(),
            nn.Conv1d(64, 64, 3, stride=2),
            nn.ReLU(),
            nn.Conv1d(64, 10, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(10 * length, out_features),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Conv1d | nn.Linear):
                nn.init.orthogonal_(layer.weight, gain=2**0.5)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        return self.layers(series.transpose(1, 2).reshape(b * v, 1, t)).view(b, v, -1)


def embedding_graph(embeddings: Tensor) -> Tensor:
    """Return FBNetGen's graph (B, V, V): products of embeddings (B, V, E) after a softmax over E."""
    shares = torch.softmax(embeddings, -1)
    return shares @ shares.mT
