"""The TRIPOD+AI checklist of a study: which item which file answers, and which the authors must answer."""

from __future__ import annotations

from pathlib import Path

AUTHORS = ""  # no file of ours answers it
# Item, what it asks for in short, the files that answer it at least in part, what is left to do.
ITEMS: tuple[tuple[str, str, str, str], ...] = (
    ("1", "Title: model development or evaluation, population, outcome", AUTHORS, ""),
    ("2", "Abstract (TRIPOD+AI for abstracts)", AUTHORS, "numbers are in results.md"),
    ("3a", "Health context, rationale, existing models", AUTHORS, ""),
    ("3b", "Target population, purpose and users", AUTHORS, ""),
    ("3c", "Known health inequalities", AUTHORS, ""),
    ("4", "Objectives", AUTHORS, ""),
    ("5a", "Sources of the data", "methods.md", "say why they represent the target population"),
    ("5b", "Dates of data collection", AUTHORS, ""),
    ("6a", "Setting, number and place of centres", "methods.md", "describe the centres"),
    ("6b", "Eligibility of participants", AUTHORS, ""),
    ("6c", "Treatments received", AUTHORS, ""),
    ("7", "Data preparation and quality checks", AUTHORS, "preprocessing of the scans came before bnt"),
    ("8a", "Outcome: definition, time and method of assessment", AUTHORS, "methods.md names the column"),
    ("8b", "Qualification of the assessors of the outcome", AUTHORS, ""),
    ("8c", "Blinding of the assessment of the outcome", AUTHORS, ""),
    ("9a", "Choice of the initial predictors", "methods.md", "say why this atlas and connectivity"),
    ("9b", "Definition of the predictors", "methods.md", "describe scanner and preprocessing"),
    ("9c", "Qualification of the assessors of the predictors", AUTHORS, "usually not applicable to connectomes"),
    ("10", "Sample size and its justification", AUTHORS, "bnt learning-curve estimates what a score needs"),
    ("11", "Missing data", "demographics.md", "say how excluded scans were chosen"),
    ("12a", "Use of the data, parts for training and evaluation", "methods.md", ""),
    ("12b", "Handling of the predictors in the analysis", "methods.md", ""),
    (
        "12c",
        "Type of model, building, tuning, internal validation",
        "methods.md references.bib",
        "say why these models",
    ),
    ("12d", "Differences between clusters such as sites", "figures/sites.pdf", ""),
    ("12e", "Measures and plots of performance, comparison of models", "methods.md results.md", ""),
    ("12f", "Updating of the model after evaluation", AUTHORS, "bnt compare updates no model"),
    ("12g", "How predictions were calculated in the evaluation", "methods.md model_card.md", ""),
    ("13", "Class imbalance", AUTHORS, "numbers per class are in demographics.md where it was written"),
    ("14", "Fairness", AUTHORS, ""),
    ("15", "Output of the model and thresholds", "model_card.md", "name the threshold you use"),
    ("16", "Differences between development and evaluation data", "methods.md", ""),
    ("17", "Ethical approval and consent", AUTHORS, ""),
    ("18a", "Funding", AUTHORS, ""),
    ("18b", "Conflicts of interest", AUTHORS, ""),
    ("18c", "Study protocol", AUTHORS, ""),
    ("18d", "Registration", AUTHORS, ""),
    ("18e", "Availability of the data", AUTHORS, "methods.md has their digest"),
    ("18f", "Availability of the code", "methods.md", "give the address of your own code"),
    ("19", "Involvement of patients and the public", AUTHORS, ""),
    ("20a", "Flow of participants", AUTHORS, "methods.md has the sizes of the parts"),
    ("20b", "Characteristics of the participants", "demographics.md", ""),
    ("20c", "Predictors in development and evaluation data", AUTHORS, ""),
    ("21", "Participants and outcomes in each analysis", "methods.md", ""),
    ("22", "The full model, so that others can predict", "model_card.md", "share the runs (bnt export)"),
    ("23a", "Performance with intervals, also of key subgroups", "results.md figures/roc.pdf", "add subgroups"),
    ("23b", "Differences in performance between clusters", "figures/sites.pdf", ""),
    ("24", "Results of updating", AUTHORS, ""),
    ("25", "Interpretation, fairness included", AUTHORS, ""),
    ("26", "Limitations", AUTHORS, "the caveats of report.html are a start"),
    ("27a", "Poor or missing input in use", AUTHORS, "bnt predict says which scans are unlike the training data"),
    ("27b", "Users' part and expertise", AUTHORS, ""),
    ("27c", "Next steps and generalisability", AUTHORS, ""),
)


def checklist(folder: Path) -> str:
    """Return the checklist as Markdown; only files that are in ``folder`` count as an answer."""
    lines, answered = [], 0
    for item, asked, files, todo in ITEMS:
        found = [name for name in files.split() if (folder / name).is_file()]
        answered += bool(found)
        lines.append(f"| {item} | {asked} | {', '.join(found) or '**authors**'} | {todo} |")
    return "\n".join(
        [
            "# TRIPOD+AI checklist",
            "",
            f"Files here answer {answered} of {len(ITEMS)} items, at least in part; the authors must answer the "
            "others, and check all. Items are shortened; their full text is in the statement (Collins 2024, BMJ 385, "
            "e078378).",
            "",
            "| item | what it asks for | answered by | left for the authors |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    )
