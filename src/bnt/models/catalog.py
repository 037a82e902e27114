"""The table of models: adding one is a file of its own and one row here.

Nothing is imported here, so that the command line can list models at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True)
class Entry:
    """One row of the catalogue.

    Attributes
    ----------
    name : str
        What users type.
    home : str
        ``module:object`` of the constructor.
    summary : str
        One line for tables.
    paper : str
        Whose model it is.
    family : {"network", "classical"}
        A torch module trained by the loop, or an object with ``fit`` and ``predict_proba``.
    needs_series : bool
        Whether the model reads time series beside the connectome.
    presets : mapping
        Options that this name sets; a user's options go on top.
    """

    name: str
    home: str
    summary: str
    paper: str
    family: Literal["network", "classical"] = "network"
    needs_series: bool = False
    presets: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


CATALOG: tuple[Entry, ...] = (
    Entry("bnt", "bnt.models.bnt:BNT", "Transformer and OCRead, as the paper's equations read", "Kan 2022"),
    Entry(
        "bnt-released",
        "bnt.models.bnt:BNT",
        "Transformer and OCRead, as the authors' code behaves",
        "Kan 2022",
        presets=MappingProxyType(
            {
                "n_clusters": 100,
                "assignment": "squared",
                "hidden_mlp": True,
                "normalise_first": False,
            }
        ),
    ),
    Entry("vanilla", "bnt.models.vanilla:VanillaTF", "Transformer with a plain readout (CONCAT)", "Kan 2022"),
    Entry("san", "bnt.models.san:SAN", "Spectral positions, attention with edges", "Kreuzer 2021"),
    Entry("graphormer", "bnt.models.graphormer:Graphormer", "Binned connectivity, attention with biases", "Ying 2021"),
    Entry("braingb", "bnt.models.braingb:BrainGB", "Graph attention with concatenated messages", "Cui 2022"),
    Entry("brainnetcnn", "bnt.models.brainnetcnn:BrainNetCNN", "Edge, node and graph filters", "Kawahara 2017"),
    Entry(
        "brainnetcnn-released",
        "bnt.models.brainnetcnn:BrainNetCNN",
        "The same with dropout at evaluation and rectified logits",
        "Kawahara 2017",
        presets=MappingProxyType({"released": True}),
    ),
)


def list_models(family: str | None = None) -> list[str]:
    """Return the names of all models, or of one family (``"network"`` or ``"classical"``)."""
    return [entry.name for entry in CATALOG if family in (None, entry.family)]
