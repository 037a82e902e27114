"""Template of your own model for bnt: change MyModel and compare it with other models.

    bnt compare cohort --models my_model.py:MyModel svm --out study
    bnt compare cohort --models my_model.py:MyModel:hidden=64 --out wider
    bnt models my_model.py:MyModel

It runs as it is. The page "Your own model" of the documentation says what else a model may take and return.
"""

from torch import Tensor, nn


class MyModel(nn.Module):
    """Each ROI's connection profile through a small network, averaged over ROIs."""

    # Fields of the recipe that this model sets for itself, if any:
    # training = {"lr": 1e-3, "lr_end": 1e-4, "batch_size": 16}

    # To read time series too: needs_series = True, an option n_volumes that is kept as self.n_volumes, and
    # forward(self, x, series) with series (B, n_volumes, V).

    def __init__(self, n_rois: int, n_classes: int, hidden: int = 32, dropout: float = 0.1) -> None:
        """Make the layers: V ROIs and C classes (1 for a score) are given, what follows are options with defaults."""
        super().__init__()
        self.profile = nn.Sequential(nn.Linear(n_rois, hidden), nn.GELU(), nn.Dropout(dropout))
        self.head = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, C) of connectomes x (B, V, V)."""
        z = self.profile(x)  # (B, V, hidden): row i of x is the connection profile of ROI i
        return self.head(z.mean(dim=1))  # (B, C)
