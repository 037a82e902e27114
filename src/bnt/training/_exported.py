"""The folder of a model to share: ``config.json``, ``model.safetensors`` and a card; no subject, no code, no pickle.

``bnt export`` writes it (:mod:`bnt.training._export`); whatever opens a run opens it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

from bnt.cohort._files import read_json, readable
from bnt.errors import BadInput
from bnt.training._config import RunConfig, config_of

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"  # the names that model hubs look for
FORMAT = "bnt-model-1"
AGAIN = "copy, download or export it again"


@dataclass(frozen=True)
class SharedModel:
    """What an exported model says of itself."""

    config: RunConfig
    threshold: float
    report: dict[str, Any]
    """What its test part gave, as in a run's ``report.json``, without what is about single scans."""


def is_shared(folder: Path) -> bool:
    """Whether this is an exported model, and not a run."""
    return (folder / CONFIG).is_file() and not (folder / "config.toml").is_file()


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file."""
    with open(file, "rb") as handle:
        return file_digest(handle, "sha256").hexdigest()


def shareable(config: RunConfig, model: str) -> RunConfig:
    """Return a configuration without the folders and the device of this machine."""
    return replace(config, model=model, cohort="", device="cpu", threads=1)


def read_shared(folder: Path) -> SharedModel:
    """Read what an exported model says of itself, and check its digests; whoever made the folder chose both."""
    file, weights = folder / CONFIG, folder / WEIGHTS
    data = read_json(file, AGAIN)
    if data.get("format") != FORMAT:
        raise BadInput(f"{file} is not of a model that bnt exports (format {FORMAT}): give a folder of bnt export.")
    if not weights.is_file():
        raise BadInput(f"The model {folder} is damaged ({WEIGHTS}: it is missing): {AGAIN}.")
    with readable(file, AGAIN):
        config = config_of(data["config"])
        if config.digest() != data["config_sha256"]:
            raise ValueError("the sha256 of its settings is another")
        if sha256_of(weights) != data["weights_sha256"]:
            raise BadInput(
                f"The model {folder} is damaged ({WEIGHTS}: its sha256 is not the one in {CONFIG}): {AGAIN}."
            )
        threshold, report = float(data["threshold"]), dict(data["report"])
        if not 0 <= threshold <= 1:
            raise ValueError(f"its threshold is {threshold}")
    # A folder of this machine that it may name is not opened.
    return SharedModel(shareable(config, config.model), threshold, report)
