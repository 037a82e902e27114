"""What ``bnt report --paper`` writes is what was run: the same numbers, the works it cites, nobody's name."""

from __future__ import annotations

import re
import shutil
import subprocess
from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bnt.cli._main import main
from bnt.errors import BadInput
from bnt.models._catalog import CATALOG
from bnt.report import _render
from bnt.report._evidence import CohortFacts
from bnt.report._methods import adjusted, as_latex, bibtex, key, latex, references
from bnt.report._paper import demographics, without_advice, write_paper, write_table

FIGURES = {"paired", "forest", "roc", "calibration", "decision", "sites", "cost", "validation"}


@pytest.fixture(scope="module")
def paper(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    words = ["report", str(study), "--out", str(folder / "page.html"), "--paper", str(folder / "paper")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_render, "inline_svg", lambda *_: "<svg></svg>")  # figures of the page, which others look at
        assert main(words) == 0
    return folder / "paper"


def test_figures_are_vector_and_300_dpi_in_the_widths_of_a_journal(paper: Path):
    assert {file.stem for file in (paper / "figures").glob("*.pdf")} == FIGURES
    for name in FIGURES:
        assert b"/Subtype /Image" not in (paper / "figures" / f"{name}.pdf").read_bytes()
        data = (paper / "figures" / f"{name}.png").read_bytes()
        assert int.from_bytes(data[16:20], "big") in (1003, 2125)  # 85 and 180 mm, whole pixels
        assert f"- {name} (" in (paper / "figures" / "captions.md").read_text()


def test_results_are_those_of_the_study(paper: Path, study: Path):
    table = pd.read_csv(paper / "results.csv")
    summary, comparisons = (pd.read_csv(study / name) for name in ("summary.csv", "comparisons.csv"))
    pd.testing.assert_frame_equal(table[summary.columns], summary)
    other = table[table["variant"] == "logistic"].iloc[0]
    assert other["difference"] == comparisons["difference"].iloc[0]
    assert other["difference_low"] == comparisons["low"].iloc[0]
    assert other["p_delong"] == comparisons["p_delong"].iloc[0]
    assert other[other["primary_p"]] == comparisons["p_corrected_holm"].iloc[0]
    shown = (paper / "results.md").read_text()
    head = shown.splitlines()[0].split(" | ")
    assert [cell.strip(" |") for cell in head if cell.strip(" |").startswith("p ")] == ["p (corrected t-test, Holm)"]
    assert f"{100 * summary['auroc'].iloc[0]:.1f} ± {100 * summary['auroc_sd'].iloc[0]:.1f}" in shown


def test_the_methods_say_what_was_run_and_cite_what_the_bibliography_has(paper: Path):
    tex, bib = (paper / "methods.tex").read_text(), (paper / "references.bib").read_text()
    keys = {key for found in re.findall(r"\\cite\{([^}]*)\}", tex) for key in found.split(",")}
    assert keys == set(re.findall(r"^@\w+\{(\w+),", bib, flags=re.MULTILINE))
    assert {"Kan2022", "Nadeau2003", "DeLong1988"} <= keys
    assert keys == set(re.findall(r"@(\w+)", (paper / "methods.md").read_text()))
    for fact in (
        "90 people from 3 sites",
        "12 ROIs of ring",
        "3 splits",
        "63 people",
        "at most 2 epochs",
        "50 draws",
        "to 0.00001 by",
    ):
        assert fact in tex
    assert r"n\_clusters=2" in tex


def test_no_subject_and_no_folder_is_named(paper: Path, study: Path):
    for file in paper.rglob("*"):
        if file.suffix in (".md", ".tex", ".csv", ".bib"):
            text = file.read_text()
            assert not re.search(r"sub-\d", text), file.name
            assert str(study.parent) not in text, file.name
            assert "/tmp" not in text, file.name


def test_the_checklist_names_files_that_are_there(paper: Path):
    rows = [line.split(" | ") for line in (paper / "checklist.md").read_text().splitlines() if line[:3].strip("| ")]
    named = {name for row in rows if len(row) == 4 for name in re.findall(r"[\w/]+\.(?:md|bib|pdf)", row[2])}
    assert {"methods.md", "results.md", "demographics.md", "model_card.md", "figures/sites.pdf"} <= named
    assert all((paper / name).is_file() for name in named)


@pytest.mark.usefixtures("undrawn")
def test_without_the_cohort_there_are_no_demographics(study: Path, tmp_path: Path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    text = (copy / "study.json").read_text()
    (copy / "study.json").write_text(re.sub(r'"cohort": "[^"]*"', '"cohort": "/gone/cohort"', text))
    folder = write_paper(copy, tmp_path / "paper")
    assert not list(folder.glob("demographics*"))
    assert "| 20b | Characteristics of the participants | **authors** |" in (folder / "checklist.md").read_text()


def test_what_is_unfinished_or_not_a_study_or_there_already_is_refused(study: Path, paper: Path, tmp_path: Path):
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    next(copy.glob("runs/logistic*/DONE")).unlink()
    with pytest.raises(BadInput, match="5 of 6"):
        write_paper(copy, tmp_path / "paper")
    with pytest.raises(BadInput, match="not a study"):
        write_paper(next(study.glob("runs/logistic*")), tmp_path / "paper")
    with pytest.raises(BadInput, match="exists already"):
        write_paper(study, paper)
    assert not (tmp_path / "paper").exists()


def test_every_model_of_the_catalogue_has_its_reference():
    assert {key(entry.paper) for entry in CATALOG if entry.paper} <= set(references())
    text = bibtex(references())
    assert text.count("{") == text.count("}")


def test_names_are_escaped_for_latex():
    assert latex("a_b 5 % & #1 {x}") == r"a\_b 5 \% \& \#1 \{x\}"
    assert as_latex("`my_model` {{Kan 2022; Holm 1979}}") == r"\texttt{my\_model} \cite{Kan2022,Holm1979}"


def test_tests_of_demographics_equal_their_formulas():
    rng = np.random.default_rng(0)
    n = 80
    y = (np.arange(n) >= 30).astype(int)
    people = pd.DataFrame(
        {
            "participant_id": [f"p{i}" for i in range(n)],
            "site": "A",
            "dx": y,
            "age": rng.normal(30, 5, n) + 2 * y,
            "sex": np.where(rng.random(n) < 0.4 + 0.2 * y, "M", "F"),
            "mean_fd": rng.gamma(2, 0.1, n),
        }
    )
    table = demographics(people, "dx", CohortFacts(""), regression=False).set_index("measure")
    a, b = (people.loc[y == v, "age"].to_numpy() for v in (0, 1))
    assert table.loc["People", ["0", "1"]].tolist() == ["30", "50"]
    assert table.loc["Age in years, mean (SD)", "0"] == f"{a.mean():.1f} ({a.std(ddof=1):.1f})"
    welch = (a.mean() - b.mean()) / sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    assert table.loc["Age in years, mean (SD)", "statistic"] == pytest.approx(welch)
    seen = pd.crosstab(people["sex"], people["dx"]).to_numpy(dtype=float)
    expected = seen.sum(axis=1, keepdims=True) * seen.sum(axis=0) / n
    assert table.loc["Sex, F / M", "statistic"] == pytest.approx(((seen - expected) ** 2 / expected).sum())
    f, g = (people.loc[y == v, "mean_fd"].to_numpy() for v in (0, 1))
    assert table.loc["Mean FD in mm, mean (SD)", "statistic"] == (f[:, None] > g).sum()
    assert np.isnan(table.loc["Sites", "p"])  # one site
    score = demographics(people.assign(score=people["age"] ** 3), "score", CohortFacts(""), regression=True)
    assert score.set_index("measure").loc["Age in years, mean (SD)", "statistic"] == pytest.approx(1.0)


def test_the_methods_say_what_was_done_around_a_model():
    combat = {"harmonise": "combat", "keep": "age", "class_weight": "balanced"}
    variants = [
        {"name": "bnt", "options": {}, "adjustments": combat},
        {"name": "svm", "options": {"confounds": "sex+mean_fd"}},
        {"name": "ridge", "options": {}},
    ]
    first, second = adjusted({"variants": variants})
    assert all(word in first for word in ("`bnt`", "ComBat", "keeping age", "weighted"))
    assert all(word in second for word in ("`svm`", "sex, mean_fd"))


def test_methods_and_tables_compile(paper: Path, tmp_path: Path):
    if shutil.which("pdflatex") is None:
        pytest.skip("there is no pdflatex here")
    for file in (*paper.glob("*.tex"), paper / "references.bib"):
        shutil.copy(file, tmp_path)
    text = "".join(rf"\input{{{file.stem}}}" for file in sorted(paper.glob("*.tex")))
    head = r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage{booktabs,graphicx}\begin{document}\sloppy "
    end = r"\bibliographystyle{plain}\bibliography{references}\end{document}"
    (tmp_path / "main.tex").write_text(head + text + end)
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main"]
    for words in (latex, ["bibtex", "main"], latex, latex):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-800:]
    log = (tmp_path / "main.log").read_text(errors="replace")
    assert "undefined" not in log
    assert "Overfull" not in log


def test_a_long_heading_is_on_lines_and_columns_of_words_begin_below_each_other(tmp_path: Path):
    table = pd.DataFrame({"model": ["svm"], "class": ["control"], "difference [95 %]": ["-1.2 [-3.4, 1.0]"]})
    write_table(tmp_path, "some", table, table, "Some.")
    tex = (tmp_path / "some.tex").read_text()
    assert r"\begin{tabular}{llr}" in tex
    assert r"difference \\ [95 \%]" in tex


def test_a_caption_says_what_was_found_and_gives_no_advice():
    said = "Caution: svm predicts nobody as b in 1 of 3 runs; --class-weight balanced may help."
    assert without_advice(said) == "svm predicts nobody as b in 1 of 3 runs."
    assert without_advice("Means; --class-weight stays.") == "Means; --class-weight stays."
