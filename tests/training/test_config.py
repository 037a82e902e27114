"""A run's configuration: TOML that the standard library reads back, that of older versions too."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnt.training._config import RunConfig, read_config, write_toml
from bnt.training._recipe import find_recipe
from bnt.training._task import Task

SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.sampled_from("🧠é\x7f\r")
)
LISTS = st.lists(SCALARS, max_size=4)
TABLES = st.recursive(
    st.dictionaries(st.text(), SCALARS | LISTS, max_size=4),
    lambda inner: st.dictionaries(st.text(), SCALARS | inner | st.lists(inner, max_size=2), max_size=4),
    max_leaves=8,
)
# As bnt 0.1.0 wrote it: one line a list, tables in braces, letters beyond ASCII escaped, fewer fields.
OLD = r"""
model = "bnt"
label = "diagnosis"
seed = 3
recipe_name = "default"
revision = 1
threads = 2
device = "cpu"
bf16 = false
cohort = "/data/\"A\"\\b"
data_sha256 = "ab"
n_rois = 3
kind = "paper"
diagonal = 1.0
rois = ["V1", "Gyrus \u03b1", "x"]
split = "site-stratified:0:split0"
split_sha256 = "cd"

[recipe]
inputs = "raw"
epochs = 12
min_steps = 528
batch_size = 16
drop_last = true
lr = 0.0001
lr_end = 1e-05
warmup = 0.0
horizon = 0
weight_decay = 0.0001
decoupled = false
reduction = "sum"
mixup = 1.0
label_smoothing = 0.0
clip = 0.0
ema = 0.99
select = "smoothed"
smooth = 5
patience = 12
n_members = 1
refit = false

[task]
kind = "classification"
classes = ["Kontrolle", "St\u00f6rung"]

[options]
sizes = [100, 10]
deep = {a = 1, b = true}
dropout = 0.1
"""
CONFIG = RunConfig(
    model="bnt",
    label="diagnosis",
    seed=3,
    recipe=find_recipe("default"),
    task=Task("classification", ("Kontrolle", "Störung")),
    options={"sizes": [100, 10], "deep": {"a": 1, "b": True}, "dropout": 0.1},
    threads=2,
    cohort='/data/"A"\\b',
    data_sha256="ab",
    n_rois=3,
    rois=("V1", "Gyrus α", "x"),
    split="site-stratified:0:split0",
    split_sha256="cd",
)


def in_numpy(value):
    """The same data with numpy's scalars, as options from a script may have them."""
    if isinstance(value, dict):
        return {k: in_numpy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_numpy(v) for v in value]
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: str}
    return kinds[type(value)](value)


@settings(max_examples=20, deadline=None)
@given(data=TABLES)
def test_what_is_written_is_read_back_by_the_standard_library(data):
    assert tomllib.loads(write_toml(data)) == data
    assert tomllib.loads(write_toml(in_numpy(data))) == data


def test_arrays_are_lists_and_what_is_unset_is_left_out():
    data = {"a": np.arange(3), "b": (1, 2), "c": None, "d": {"e": None, "f": np.float32(0.5)}}
    assert tomllib.loads(write_toml(data)) == {"a": [0, 1, 2], "b": [1, 2], "d": {"f": 0.5}}


@pytest.mark.parametrize(
    "options", [{"name": "🧠"}, {"dropout": np.float64(0.1), "k": np.int64(3)}, {"sizes": (100, 10)}, {"none": None}]
)
def test_a_configuration_is_the_same_after_it_was_written(tmp_path, options):
    config = replace(CONFIG, options=options, cohort="/data/🧠")
    (tmp_path / "config.toml").write_text(write_toml(config.to_dict()), encoding="utf-8")
    assert read_config(tmp_path).digest() == config.digest()


def test_files_of_version_0_1_0_are_read(tmp_path):
    (tmp_path / "config.toml").write_text(OLD)
    found = read_config(tmp_path)
    assert found == CONFIG
    assert found.digest() == CONFIG.digest()
