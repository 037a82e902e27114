"""Models of a user's own: the page about them is run as it is written, and mistakes are named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

import bnt
from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models._registry import short_name, split_word
from bnt.models.classical._inputs import Inputs
from bnt.training._trained import TrainedRun

PAGE = Path(__file__).parents[2] / "docs" / "own-models.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

MISTAKES = """
import numpy as np
from torch import nn
from bnt.nn import Output

class Net(nn.Module):
    def __init__(self, n_rois, n_classes):
        super().__init__()
        self.n_rois, self.head = n_rois, nn.Linear(n_rois, n_classes)

class EachROI(Net):
    def forward(self, x):
        return self.head(x)

class Answer(Net):
    def forward(self, x):
        return {"logits": self.head(x.mean(1))}

class Raises(Net):
    def forward(self, x):
        raise ArithmeticError("a bug of mine")

class Detached(Net):
    def forward(self, x):
        return self.head(x.mean(1)).detach()

class Doubles(Net):
    def __init__(self, n_rois, n_classes):
        super().__init__(n_rois, n_classes)
        self.double()
    def forward(self, x):
        return self.head(x.mean(1))

class Vanishes(Net):
    def forward(self, x):
        return self.head(x.mean(1)) * (1 if self.training else float("nan"))

class Losses(Net):
    def forward(self, x):
        return Output(self.head(x.mean(1)), loss=x.sum((1, 2)))

class Overwrites(Net):
    def forward(self, x):
        z = self.head(x.mean(1)).exp()
        z += 1
        return z

class Undeclared(Net):
    def forward(self, x, series):
        return self.head(series.mean(1))

class Unsized(Net):
    def __init__(self, n_rois, n_classes):
        super().__init__(n_rois, n_classes)
        self.head = nn.LazyLinear(n_classes)

class Misnamed(Net):
    training = {"learning_rate": 0.1}

class Everything(Net):
    needs_series = False
    training = {"lr": 0.5, "epochs": 3}
    def forward(self, x, series=None, target=None, explain=False):
        return Output(self.head(x.mean(1)), loss=0 * x.sum(), attention=(x[:, None],) if explain else ())

class Waves(Net):
    needs_series = True
    def __init__(self, n_rois, n_classes, n_volumes=10):
        super().__init__(n_rois, n_classes)
        self.n_volumes = n_volumes
    def forward(self, x, series):
        assert series.shape == (len(x), self.n_volumes, self.n_rois), series.shape
        return self.head(series.var(1))

class NoSizes(nn.Module):
    def __init__(self, width=3):
        super().__init__()

class Hard:
    def fit(self, x, y):
        raise ValueError("too little of it")
    def predict_proba(self, x):
        return np.zeros((len(x), 3))

class Nowhere:
    def fit(self, x, y):
        return self
    def predict_proba(self, x):
        return np.full((len(x), 2), np.nan)
    def predict(self, x):
        return np.full(len(x), np.nan)

class Soft(Hard):
    def fit(self, x, y):
        return self

def nothing(): return None
def undefined(n_rois, n_classes): return missing_name
def no_module(n_rois, n_classes): return 3
def no_parameters(n_rois, n_classes): return nn.Flatten()
"""


@pytest.fixture
def models(tmp_path):
    """Write the file of the page; return its path."""
    file = tmp_path / "my_models.py"
    file.write_text(BLOCKS[0])
    return file


@pytest.fixture
def mistakes(tmp_path):
    """Write a file of models that go wrong; return its path."""
    file = tmp_path / "mistakes.py"
    file.write_text(MISTAKES)
    return file


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "cohort"
    bnt.simulate_cohort(n_subjects=60, n_rois=14, n_sites=2, seed=0).save(folder)
    return folder


def test_the_loop_of_the_page_runs(models, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(models.parent))
    exec(compile(BLOCKS[1], PAGE.name, "exec"), {})
    assert re.match(r"0\.\d+ against 0\.\d+, corrected p = ", capsys.readouterr().out)


def test_own_models_are_compared_with_the_others(models, cohort, tmp_path, capsys):
    words = [f"{models}:RowMLP", f"{models}:RowMLP:hidden=4", f"{models}:scaled_logistic", "svm"]
    study = ["compare", str(cohort), "--splits", "1", "--epochs", "1", "--jobs", "1", "--out", str(tmp_path / "study")]
    assert main([*study, "--models", *words]) == 0
    runs = pd.read_csv(tmp_path / "study" / "runs.csv")
    assert set(runs["variant"]) == {
        "my_models.py:RowMLP", "my_models.py:RowMLP:hidden=4", "my_models.py:scaled_logistic", "svm"
    }  # fmt: skip
    sizes = runs.groupby("variant")["n_parameters"].first()
    assert sizes["my_models.py:RowMLP:hidden=4"] == 14 * 4 + 4 + 4 * 2 + 2

    # The estimator's scores are those of the same estimator fitted by hand on the run's own lists.
    source = bnt.load_cohort(cohort)
    made: dict = {}
    exec(BLOCKS[0], made)
    row = runs[runs["variant"] == "my_models.py:scaled_logistic"].iloc[0]
    [split] = bnt.splits.read_splits(tmp_path / "study" / "runs" / row["run"] / "splits.csv")
    train, _, test = split.rows(source)
    y = source.labels("diagnosis")
    fitted = made["scaled_logistic"]().fit(source.connectomes[train], y[train])
    expected = roc_auc_score(y[test], fitted.predict_proba(source.connectomes[test])[:, 1])
    assert row["auroc"] == pytest.approx(expected)

    # Given again it runs nothing; after an edit it is refused, and so is prediction.
    before = (tmp_path / "study" / "runs.csv").read_text()
    assert main([*study, "--models", *words]) == 0
    assert (tmp_path / "study" / "runs.csv").read_text() == before
    run = tmp_path / "study" / "runs" / runs["run"][0]
    assert TrainedRun(run).predict(source).shape == (60, 2)
    models.write_text(BLOCKS[0].replace("nn.GELU()", "nn.Tanh()"))
    capsys.readouterr()
    assert main([*study, "--models", *words]) == 2
    assert "my_models.py has changed since" in capsys.readouterr().err
    with pytest.raises(BadInput, match="has changed since"):
        TrainedRun(run)


def test_a_network_that_reads_series_is_given_its_window(mistakes, cohort, tmp_path):
    command = ["train", str(cohort), "--model", f"{mistakes}:Waves", "--epochs", "1", "--out"]
    assert main([*command, str(tmp_path / "ten")]) == 0
    assert main([*command, str(tmp_path / "seven"), "--option", "n_volumes=7"]) == 0
    assert TrainedRun(tmp_path / "seven").predict(bnt.load_cohort(cohort)).shape == (60, 2)


def test_a_file_that_changed_is_not_run(models, cohort, tmp_path):
    assert (
        main(["train", str(cohort), "--model", f"{models}:RowMLP", "--epochs", "1", "--out", str(tmp_path / "run")])
        == 0
    )
    models.write_text("raise SystemExit('this must not be run')\n")
    with pytest.raises(BadInput, match="has changed since"):
        TrainedRun(tmp_path / "run")


def test_an_estimator_predicts_only_within_its_run(models, cohort, tmp_path):
    out = tmp_path / "run"
    assert (
        main(["train", str(cohort), "--model", f"{models}:scaled_logistic", "--option", "C=0.1", "--out", str(out)])
        == 0
    )
    assert json.loads((out / "report.json").read_text())["test"]["auroc"] >= 0
    with pytest.raises(BadInput, match="keeps no weights"):
        TrainedRun(out)


def test_the_seed_reaches_every_random_state(tmp_path):
    file = tmp_path / "forest.py"
    file.write_text("from sklearn.ensemble import RandomForestClassifier as Forest\n")
    model = bnt.create_model(f"{file}:Forest", n_rois=5, n_estimators=3)
    model.seed = 7
    assert model.estimator.get_params()["random_state"] == 7


def test_what_a_network_names_it_is_given(mistakes):
    net = bnt.create_model(f"{mistakes}:Everything", n_rois=5)
    x = torch.rand(3, 5, 5)
    assert net(x).attention == ()
    assert len(net(x, explain=True).attention) == 1
    assert float(net(x).loss) == 0.0
    from bnt.training import find_recipe

    recipe = find_recipe("default", f"{mistakes}:Everything")
    assert (recipe.lr, recipe.epochs) == (0.5, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("EachROI", r"mistakes.py:EachROI returned logits of shape \(3, 5, 2\) for 3 subjects: they must be \(3, 2\)"),
        ("Answer", r"mistakes.py:Answer returned a dict: return logits \(3, 2\)"),
        ("NoSizes", "NoSizes is a torch module whose constructor takes width: it must take n_rois and n_classes"),
        ("nothing", "mistakes.py:nothing made a NoneType, which has no fit"),
        ("undefined", "cannot be made: NameError: name 'missing_name' is not defined .line [0-9]+ of .*mistakes.py"),
        ("no_module", "made a int: it takes n_rois, so it must make a torch module"),
        ("no_parameters", "no_parameters has no parameters to train"),
        (
            "Raises",
            r"Raises fails on connectomes \(3, 5, 5\): ArithmeticError: a bug .*line [0-9]+ of .*mistakes.py",
        ),
        ("Doubles", "RuntimeError: .*Float and Double .line [0-9]+ of .*mistakes.py"),
        ("Detached", "returned logits that no parameter can be trained by"),
        ("Losses", "returned a loss that is not one number"),
        ("Undeclared", "Undeclared reads time series: set needs_series = True"),
        ("Unsized", "has layers without a size"),
        ("Nope", "has no class or function 'Nope'; it has Net, EachROI, Answer"),
    ],
)
def test_a_mistake_is_named(mistakes, name, said):
    with pytest.raises(BadInput, match=said):
        bnt.create_model(f"{mistakes}:{name}", n_rois=5)(torch.rand(3, 5, 5))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Overwrites", "mistakes.py:Overwrites cannot be trained: RuntimeError: .*modified by an inplace operation"),
        ("Vanishes", "mistakes.py:Vanishes returned logits that are not finite in evaluation"),
        ("Misnamed", "mistakes.py:Misnamed sets 'learning_rate'; the fields of a recipe are inputs, epochs"),
        ("Nowhere", r"mistakes.py:Nowhere gave probabilities \[nan, nan\]: they must be at least 0 and sum to 1"),
    ],
)
def test_a_mistake_in_training_is_one_sentence(mistakes, cohort, tmp_path, capsys, name, said):
    command = ["train", str(cohort), "--model", f"{mistakes}:{name}", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert re.search(said, capsys.readouterr().err)
    assert list(tmp_path.glob("run*")) == []  # and nothing is left behind


def test_scores_that_are_no_numbers_are_refused(mistakes, cohort):
    inputs = Inputs.of(bnt.load_cohort(cohort), range(3))
    with pytest.raises(BadInput, match="Nowhere gave nan as a score"):
        bnt.create_model(f"{mistakes}:Nowhere", n_rois=14, n_classes=1).predict(inputs)


def test_another_number_of_rois_is_named(mistakes):
    with pytest.raises(BadInput, match=r"was made for 5 ROIs and was given \(3, 6, 6\)"):
        bnt.create_model(f"{mistakes}:Everything", n_rois=5)(torch.rand(3, 6, 6))


def test_files_that_are_missing_or_broken_are_named(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    (tmp_path / "typo.py").write_text("def f(:\n")
    with pytest.raises(BadInput, match="none.py cannot be read"):
        bnt.create_model(f"{tmp_path}/none.py:Net", n_rois=5)
    with pytest.raises(BadInput, match="broken.py cannot be run: ModuleNotFoundError: .*line 1 of"):
        bnt.create_model(f"{tmp_path}/broken.py:Net", n_rois=5)
    (tmp_path / "script.py").write_text("raise SystemExit('usage')\n")
    with pytest.raises(BadInput, match="script.py cannot be run: SystemExit: usage"):
        bnt.create_model(f"{tmp_path}/script.py:Net", n_rois=5)
    with pytest.raises(BadInput, match="my.py' is a file: also name the class or function in it, as in my.py:MyModel"):
        bnt.create_model("my.py", n_rois=5)
    with pytest.raises(BadInput, match="typo.py cannot be run: SyntaxError"):
        bnt.create_model(f"{tmp_path}/typo.py:Net", n_rois=5)


def test_one_failure_stops_no_other_and_leaves_its_traceback(mistakes, cohort, tmp_path, capsys):
    words = [f"{mistakes}:{name}" for name in ("Raises", "Hard", "Soft")]
    out = tmp_path / "study"
    command = ["compare", str(cohort), "--splits", "1", "--epochs", "1", "--jobs", "1", "--out", str(out)]
    assert main([*command, "--models", "svm", *words]) == 1
    said = capsys.readouterr().out
    assert "| svm |" in said
    assert re.search(
        r"ArithmeticError: a bug of mine \(line \d+ of .*mistakes.py\); all of it is in .*traceback.txt", said
    )
    assert "mistakes.py:Hard could not be fitted: ValueError: too little of it" in said
    assert re.search(r"mistakes.py:Soft gave probabilities \(\d+, 3\)", said)
    assert "in forward" in (out / "runs" / "mistakes.py_Raises--split0--seed0" / "traceback.txt").read_text()


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("bnt", ("bnt", "", "")),
        ("bnt:", ("bnt", ":", "")),
        ("bnt:n_clusters=4", ("bnt", ":", "n_clusters=4")),
        ("a/b.py:Net", ("a/b.py:Net", "", "")),
        ("a/b.py:Net:x=[1,2]", ("a/b.py:Net", ":", "x=[1,2]")),
        ("a/b.py:Net:file=c.py:d", ("a/b.py:Net", ":", "file=c.py:d")),
    ],
)
def test_words_are_taken_apart(word, parts):
    assert split_word(word) == parts


def test_tables_show_the_file_without_its_folder():
    assert short_name("/a/b/my.py:Net:x=1") == "my.py:Net:x=1"
    assert short_name("bnt:path=a/b") == "bnt:path=a/b"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("svm,logistic", "has a comma: separate models by spaces, svm logistic"),
        (
            "my_models:Net",
            "'Net' is not option=value, for example bnt:n_clusters=4; a model of your own is my_models.py",
        ),
    ],
)
def test_words_that_are_no_model_say_how_it_is_written(word, said, cohort, tmp_path, capsys):
    assert main(["compare", str(cohort), "--models", word, "--out", str(tmp_path / "s")]) == 2
    assert said in capsys.readouterr().err
