"""Models to share: their folder (``config.json``, ``model.safetensors``, a card) and a hub, ``hf://owner/name``.

``bnt export`` writes it (:mod:`bnt.training._export`); whatever opens a run opens it too.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

from bnt.cohort._files import read_json, readable
from bnt.errors import BadInput, in_one_line
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


PREFIX = "hf://"
FILES = (CONFIG, WEIGHTS, CARD, "model.onnx")
_WORD = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


def is_on_hub(word: str | Path) -> bool:
    """Whether a word names a model on a hub."""
    return str(word).startswith("hf:/")


def repository(word: str | Path) -> tuple[str, str | None]:
    """Return owner and name, and the revision where one is given.

    Examples
    --------
    >>> repository("hf://lab/autism-bnt@v1")
    ('lab/autism-bnt', 'v1')
    """
    found = _WORD.fullmatch(str(word))
    if found is None:
        raise BadInput(f"{word} is not a model on the hub: write hf://owner/name, or hf://owner/name@revision.")
    return found[1], found[2]


def _library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise BadInput(
            "Models on the hub need the package huggingface_hub: pip install 'brain-network-transformer[hub]'."
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    return huggingface_hub


def local_model(word: str | Path) -> Path:
    """Return the folder of a model: a path as it is, a model on the hub once it is downloaded.

    Only the files of an export are downloaded, whatever else the repository holds; nothing in them is run.
    """
    if not is_on_hub(word):
        return Path(word)
    name, revision = repository(word)
    hub, word = _library(), PREFIX + str(word)[3:].lstrip("/")
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES[:3])))
    except Exception as error:  # of the network, the hub, or the name: the library's own words say which
        raise BadInput(
            f"{word} cannot be downloaded ({in_one_line(error, besides=__file__)}): check its name and your access."
        ) from error
    if not (folder / CONFIG).is_file():
        raise BadInput(f"{word} has no {CONFIG}, so it is not a model of bnt export.")
    return folder


def push(folder: Path, word: str, *, public: bool = False) -> str:
    """Upload an exported model and return its address; a repository that is made is private unless asked otherwise."""
    name, revision = repository(word)
    hub = _library()
    try:
        api = hub.HfApi()
        address = api.create_repo(name, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=name,
            revision=revision,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Model exported by bnt",
        )
    except Exception as error:  # of the network, the hub, or the account: the library's own words say which
        why = in_one_line(error, besides=__file__)
        raise BadInput(
            f"{folder} cannot be uploaded to {word} ({why}): log in with `hf auth login`, or upload the folder by hand."
        ) from error
    return str(address)
