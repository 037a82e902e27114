"""Text for a paper about a study: the methods paragraph, its bibliography and the TRIPOD+AI checklist.

In the neutral text `` `name` `` is code and ``{{Kan 2022; Holm 1979}}`` cites entries of the bibliography.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import counted, percent, shown_name
from bnt.cohort._files import without_folders
from bnt.cohort._inspect import people_of
from bnt.models._catalog import CATALOG, Entry
from bnt.report._evidence import CohortFacts
from bnt.splits._protocols import is_table
from bnt.studies._chance import chance_words
from bnt.studies._results import score_name
from bnt.training._recipe import Adjustments, Recipe, names_of

CITED = re.compile(r"\{\{([^}]*)\}\}")
CODE = re.compile(r"`([^`]*)`")
PROTOCOLS = {
    "site-stratified": "repeated random splits, stratified by site and class",
    "random": "repeated random splits",
    "kfold": "repeated k-fold cross-validation, with the validation set taken from the training folds",
    "nested": "nested cross-validation: outer folds were tested, inner folds of the other subjects chose the settings",
    "leave-one-site-out": "leave-one-site-out cross-validation",
    "released": "the splitter of the published code {{Kan 2022}}, whose training set never changes",
}
SELECTED = {
    "best": "the epoch with the best validation score was tested",
    "smoothed": "the epoch with the best trailing mean of {smooth} validation scores was tested",
    "last": "the last epoch was tested, so that nothing was selected",
}
LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "²": "$^2$",
    "χ": r"$\chi$",
    "–": "--",
    "−": "$-$",
}


def latex(text: str) -> str:
    """Return a text with everything that LaTeX reads as a command escaped."""
    return "".join(LATEX.get(letter, letter) for letter in str(text))


def as_markdown(text: str) -> str:
    """Return a neutral text as Markdown with citations as pandoc reads them."""
    return CITED.sub(lambda found: "[" + "; ".join(f"@{key(name)}" for name in found[1].split("; ")) + "]", text)


def as_latex(text: str) -> str:
    """Return a neutral text as LaTeX."""
    parts = re.split(r"(\{\{[^}]*\}\}|`[^`]*`)", text)
    found = []
    for part in parts:
        if cited := CITED.fullmatch(part):
            found.append("\\cite{" + ",".join(key(name) for name in cited[1].split("; ")) + "}")
        elif code := CODE.fullmatch(part):
            breakable = re.sub(r"([,:])", r"\1\\allowbreak{}", latex(code[1]))  # long names of models
            found.append(f"\\texttt{{{breakable}}}")
        else:
            found.append(latex(part))
    return "".join(found)


def cited(texts: list[str]) -> set[str]:
    """Return the references that neutral texts cite."""
    return {name for text in texts for found in CITED.findall(text) for name in found.split("; ")}


def listed(words: list[str]) -> str:
    """Return ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def methods(
    folder: Path,
    study: dict[str, Any],
    cohort: CohortFacts,
    people: pd.DataFrame | None,
    runs: pd.DataFrame,
    summary: pd.DataFrame,
    comparisons: pd.DataFrame,
    primary: str,
) -> list[str]:
    """Return the paragraphs of the methods section in neutral form.

    Parameters
    ----------
    folder : path
        The study's.
    study : dict
        Its ``study.json``.
    people : DataFrame, optional
        Scans that the splits have; None where the cohort cannot be opened.
    primary : str
        The primary p-value in words; empty where there is none.
    """
    paragraphs = [
        data(study, cohort, people, regression=score_name(runs) == "r"),
        evaluation(study, runs),
        models(study),
        training(study, folder, runs),
        statistics(study, runs, summary, comparisons, primary),
        software(study, runs),
    ]
    return [text for text in paragraphs if text]


def data(study: dict[str, Any], cohort: CohortFacts, people: pd.DataFrame | None, regression: bool) -> str:
    """Say whose connectomes were used, and what was predicted."""
    name = str(cohort.facts.get("source", {}).get("name", "") or "")
    source = f"{without_folders(name)}; " if name else ""
    n = study["n_subjects"] if people is None else len(people)
    text = f"We analysed {counted(n, 'functional connectome')}"
    if people is not None:
        persons = len(set(people_of(people)))
        text += f" of {counted(persons, 'person').replace('persons', 'people')}"
        text += f" from {counted(people['site'].nunique(), 'site')}"
    text += f" ({source}{cohort.connectomes(study['n_rois'], study['kind'])})."
    if regression:
        return text + f" The models predicted the score `{study['label']}`."
    text += f" The models predicted the class `{study['label']}`"
    if people is not None and study["label"] in people:
        counts = people.assign(_person=people_of(people)).drop_duplicates("_person")[study["label"]].value_counts()
        words = [f"{cohort.class_name(study['label'], value)}: {n:,}" for value, n in counts.sort_index().items()]
        text += f" ({', '.join(words)})"
    return text + "."


def evaluation(study: dict[str, Any], runs: pd.DataFrame) -> str:
    """Say how people were split, and how large the sets were."""
    protocol = str(study["protocol"])
    how = PROTOCOLS.get(protocol, f"the protocol `{without_folders(protocol)}`")
    if "auroc" not in runs:  # a score is cut into quantiles
        how = how.replace("site and class", "site and quantiles of the score")
    if is_table(protocol):
        how = f"predefined splits (`{Path(protocol).name}`)"
    sizes = runs[["n_train", "n_val", "n_test"]].drop_duplicates()
    low, high = sizes.min().tolist(), sizes.max().tolist()
    parts = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in zip(low, high)]
    seeds = f", and each training repeated with {counted(len(study['seeds']), 'seed')}" * (len(study["seeds"]) > 1)
    return (
        f"Models were evaluated by {how}: {counted(len(study['splits']), 'split')} with {parts[0]} people for "
        f"training, {parts[1]} for validation and {parts[2]} for testing{seeds}. All models had the same splits. "
        "Before training it was checked that no person, family or scan was in two sets of a split. The test set was "
        "used once, to score the final model."
    )


def described(entry: Entry) -> str:
    """Return the summary of a model for the middle of a sentence; that of a variant begins with its base model."""
    text = entry.summary.rpartition(": ")[2].replace("the paper's", "its paper's")
    base = entry.name.removesuffix("-released")
    if base != entry.name and text.startswith(base):
        whole = next(row.summary for row in CATALOG if row.name == base)
        text = f"{whole}, {text.removeprefix(base).lstrip(', ')}"
    return text[:1].lower() + text[1:]


def models(study: dict[str, Any]) -> str:
    """Name the models, each with its reference."""
    entries, words = {entry.name: entry for entry in CATALOG}, []
    for variant in study["variants"]:
        entry = entries.get(variant["model"])
        word = f"`{without_folders(variant['name'])}`"
        if entry is None:
            words.append(f"{word} (a model of the authors)")
            continue
        paper = f" {{{{{entry.paper}}}}}" if entry.paper else ""
        words.append(f"{word} ({described(entry)}){paper}")
    one = len(words) == 1
    return f"The model was {words[0]}." if one else f"We compared {counted(len(words), 'model')}: {'; '.join(words)}."


def plain(value: float) -> str:
    """Return a number as papers print it: ``0.00001``, not ``1e-05``."""
    return np.format_float_positional(value, trim="-")


def recipe_words(recipe: dict[str, Any]) -> str:
    """Return how a network was trained, and how its epoch was selected."""
    recipe = {**asdict(Recipe()), **recipe}  # of versions that had fewer fields
    optimiser = "AdamW {{Loshchilov 2019}}" if recipe["decoupled"] else "Adam {{Kingma 2015}}"
    at_least = f" (raised to make at least {recipe['min_steps']:,} steps)" if recipe["min_steps"] else ""
    text = f"{optimiser}, learning rate {plain(recipe['lr'])}"
    if recipe["halve_every"]:
        text += f" halved every {recipe['halve_every']} epochs"
    elif recipe["lr_end"] != recipe["lr"]:
        text += f" decaying to {plain(recipe['lr_end'])} by a cosine"
    if recipe["warmup"]:
        text += f" after a linear rise over {percent(recipe['warmup'])} of the steps"
    text += f", weight decay {plain(recipe['weight_decay'])}, batches of {recipe['batch_size']}"
    text += f", at most {counted(recipe['epochs'], 'epoch')}{at_least}"
    if recipe["patience"]:
        text += f", stopped after {recipe['patience']} epochs without a better validation score"
    if recipe["mixup"]:
        text += f", mixup with Beta({recipe['mixup']:g}, {recipe['mixup']:g}) {{{{Zhang 2018}}}}"
    if recipe["label_smoothing"]:
        text += f", label smoothing {recipe['label_smoothing']:g}"
    if recipe["clip"]:
        text += f", gradients clipped to a norm of {recipe['clip']:g}"
    if recipe["inputs"] != "raw":
        text += ", inputs centred by the training set"
    if recipe["ema"]:
        text += f", weights averaged with decay {recipe['ema']:g}"
    if recipe["n_members"] > 1:
        text += f", {recipe['n_members']} networks averaged"
    text += "; " + SELECTED[recipe["select"]].format(smooth=recipe["smooth"])
    return text + ("; it was then trained again on training and validation together" if recipe["refit"] else "")


def adjusted(study: dict[str, Any]) -> list[str]:
    """Return a sentence for each set of models around which something was done: harmonised, regressed out, weighted."""
    groups: dict[str, list[str]] = {}
    for variant in study["variants"]:
        done = Adjustments.from_dict(variant.get("adjustments")).described()
        own = str(variant["options"].get("confounds") or "")
        done += [f"{', '.join(names_of(own))} regressed out of the features"] if own else []
        if done:
            groups.setdefault("; ".join(done), []).append(f"`{without_folders(variant['name'])}`")
    return [f"For {listed(names)}: {what}." for what, names in groups.items()]


def training(study: dict[str, Any], folder: Path, runs: pd.DataFrame) -> str:
    """Say how networks were trained, models of one recipe together, and what was tuned."""
    entries = {entry.name: entry for entry in CATALOG}
    groups: dict[str, list[str]] = {}
    fitted: list[str] = []
    refitted: list[str] = []
    for variant in study["variants"]:
        entry, name = entries.get(variant["model"]), f"`{without_folders(variant['name'])}`"
        epochs = runs.loc[runs["variant"] == variant["name"], "chosen_epoch"].max()
        if entry.trains_in_epochs if entry is not None else epochs > 0:
            words = f"trained with the recipe `{variant['recipe_name']}`: {recipe_words(variant['recipe'])}"
            groups.setdefault(words, []).append(name)
        else:
            (refitted if variant["recipe"]["refit"] else fitted).append(name)
    groups |= {"fitted to the training set": fitted} if fitted else {}
    groups |= {"fitted to the training and validation sets together": refitted} if refitted else {}
    text = [f"{listed(names)} {'was' if len(names) == 1 else 'were'} {words}." for words, names in groups.items()]
    text += adjusted(study)
    if (folder / "chosen.csv").is_file():
        folds = study.get("inner_folds")
        where = f"by the mean score over {folds} inner folds" if folds else "on the validation set"
        text.append(f"Hyperparameters were chosen {where} of each split; every trial is in `trials.csv`.")
    else:
        text.append(
            "No hyperparameters were searched; models that choose a penalty themselves did so without the test set."
        )
    return " ".join(text)


def statistics(
    study: dict[str, Any], runs: pd.DataFrame, summary: pd.DataFrame, comparisons: pd.DataFrame, primary: str
) -> str:
    """Name the scores, the intervals and the tests, the primary one first."""
    metric = score_name(runs)
    text = (
        f"The primary score was the mean test {shown_name(metric)} over splits, with its SD and a 95 % interval "
        "corrected for the overlap of splits {{Nadeau 2003}}."
    )
    if "positive_class" in runs:
        text += f" The positive class was `{runs['positive_class'].iloc[0]}`."
    text += f" {primary}" if primary else " No p-value is reported."
    others = []
    if len(comparisons) and "p_plain" in comparisons:
        others.append("a plain paired t-test")
    if "p_delong" in comparisons:
        others.append("DeLong's test on each person's averaged predictions {{DeLong 1988}}")
    if "p_permutation" in comparisons:
        drawn = f" ({int(summary['chance_draws'].iloc[0]):,} draws)" if "chance_draws" in summary else ""
        others.append(f"a paired permutation test{drawn} {{{{Phipson 2010}}}}")
    if len(comparisons) and "p_chance" in summary:
        others.append(f"a test of each model against chance ({chance_words(summary)})")
    if others:
        text += f" Secondary tests, in results.csv: {listed(others)}."
    return text


def software(study: dict[str, Any], runs: pd.DataFrame) -> str:
    """Name versions, seeds and the digest of the data."""
    named = [re.sub(r"(\S+ \S+) ", r"\1, ", text) for text in dict.fromkeys(runs["versions"])]
    versions = "; and ".join(named)
    seeds = listed([str(seed) for seed in study["seeds"]])
    torch = " {{Paszke 2019}}" if "torch" in versions else ""
    return (
        f"Analyses used {versions}{torch}, with random {'seed' if len(study['seeds']) == 1 else 'seeds'} {seeds}. The "
        f"SHA-256 digest of the connectomes begins with `{study['data_sha256'][:16]}`. The file checklist.md has the "
        "TRIPOD+AI checklist {{Collins 2024}}."
    )


def key(name: str) -> str:
    """Return the BibTeX key of a reference: ``Kan2022b`` of ``Kan 2022b``."""
    return name.replace(" ", "")


@cache
def references() -> dict[str, str]:
    """Return the entries of ``references.bib`` by their keys."""
    text = files("bnt.report").joinpath("references.bib").read_text(encoding="utf-8")
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in text.strip().split("\n\n")}


def bibtex(names: Iterable[str]) -> str:
    """Return the entries of these references, each once, in the order of their names."""
    return "\n\n".join(references()[key(name)] for name in sorted(set(names))) + "\n"


def checklist(folder: Path) -> str:
    """Return the checklist as Markdown; only files that are in ``folder`` count as an answer.

    ``tripod.tsv`` has its items: what each asks for in short, the files that answer it at least in part, what is left.
    """
    with files("bnt.report").joinpath("tripod.tsv").open(encoding="utf-8") as table:
        items = pd.read_csv(table, sep="\t", dtype=str, keep_default_na=False)
    lines, answered = [], 0
    for item, asked, answers, todo in items.itertuples(index=False):
        found = [name for name in answers.split() if (folder / name).is_file()]
        answered += bool(found)
        lines.append(f"| {item} | {asked} | {', '.join(found) or '**authors**'} | {todo} |")
    return "\n".join(
        [
            "# TRIPOD+AI checklist",
            "",
            f"Files here answer {answered} of {len(items)} items, at least in part; the authors must answer the "
            "others, and check all. Items are shortened; their full text is in the statement (Collins 2024, BMJ 385, "
            "e078378).",
            "",
            "| item | what it asks for | answered by | left for the authors |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    )
