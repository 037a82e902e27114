"""Explain a finished run: attention by network, cluster assignments, edge attributions.

DIR then holds tables (CSV), figures (PNG and PDF) and explain.json. What the model does not have (a linear model has no
attention) is left out, and explain.json says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt explain``."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder to make."""
    method: Literal["auto", "integrated-gradients", "gradient", "pattern", "coefficients"] = "auto"
    """How edges are explained: integrated gradients (captum) or gradient times input for networks; patterns (Haufe) or
    standardised coefficients for linear models; patterns work for any model."""
    target: str | None = None
    """The class to explain; the last one without it."""
    subjects: Literal["test", "validation", "train", "all"] = "test"
    """Whose predictions are explained."""
    also: tuple[Path, ...] = ()
    """More runs of the same kind (other splits or seeds): how stable are clusters and edges over them?"""
    sanity: int = 0
    """Refit this many times on resampled training subjects, with true and with shuffled labels: the latter must give no
    stable map."""
    permutations: int = 1000
    """Of every permutation test."""
    seed: int = 0
    """Of permutations and resamples."""
    overwrite: bool = False
    """Replace an explanation that is there."""


def run(options: Options) -> None:
    """Write the explanation and print its headlines."""
    from bnt.cohort import load_cohort
    from bnt.cohort._files import new_folder
    from bnt.errors import BadInput
    from bnt.explain._opening import is_network
    from bnt.explain._writing import Explanation, chosen_rows
    from bnt.training._trained import TrainedRun

    if options.sanity == 1 or options.sanity < 0:
        raise BadInput(f"--sanity is {options.sanity}: stability compares at least 2 refits.")
    trained = TrainedRun(options.run)
    also = [TrainedRun(path) for path in options.also]
    cohort = load_cohort(options.cohort)
    for one in (trained, *also):
        one.check(cohort)
    rows = chosen_rows(trained, cohort, options.subjects)
    method = None if options.method == "auto" else options.method
    with new_folder(options.out, overwrite=options.overwrite, marker="explain.json") as folder:
        work = Explanation(trained, cohort, rows, folder, options.permutations, options.seed)
        facts: dict[str, Any] = {
            "run": str(options.run),
            "cohort": str(options.cohort),
            "model": trained.config.model,
            "subjects": options.subjects,
            "n_subjects": len(rows),
            "permutations": options.permutations,
            "seed": options.seed,
        }
        if is_network(trained):
            for name, make in (("attention", work.attention), ("clusters", lambda: work.clusters(also))):
                try:
                    facts[name] = make()
                except BadInput as error:  # the model has none: say so and continue
                    facts[name] = {"not_available": str(error)}
        facts["edges"] = work.edges(method, options.target, also)
        if options.sanity:
            facts["sanity"] = _sanity(options, trained, work, method)
        work.summary(facts)
    print("\n".join(headlines(facts)))
    print(f"Tables, figures and explain.json in {options.out}")


def _sanity(options: Options, trained: Any, work: Any, method: str | None) -> dict[str, Any]:
    """Compare maps of resampled true and shuffled labels."""
    from bnt.errors import BadInput
    from bnt.explain._opening import part_rows
    from bnt.explain._stability import sanity_check

    if work.training is None:
        raise BadInput(f"The training subjects of {options.run} are not in {options.cohort}: --sanity refits on them.")
    cohort, train = work.training
    rows, val = (part_rows(trained.folder, cohort, part) for part in ("test", "validation"))
    return sanity_check(trained.config, cohort, train, val, rows, options.sanity, method, options.seed).to_dict()


def headlines(facts: dict[str, Any]) -> list[str]:
    """Return the main findings as sentences."""
    lines = []
    found = facts.get("attention", {}).get("enrichment_layer_1")
    if found:
        own = facts["attention"]["enrichment_input"]
        lines.append(
            f"Attention within networks is {found['ratio']:.2f} times that between them (layer 1, "
            f"p = {found['p']:.3g}); the connectome itself {own['ratio']:.2f} times (p = {own['p']:.3g})."
        )
    for row in facts.get("clusters", {}).get("difference", [])[:1]:
        lines.append(
            f"Assignments differ between classes by d = {row['d']:.4f}; permuted classes by {row['null_mean']:.4f} "
            f"(p = {row['p']:.3g})."
        )
    for fit in facts.get("clusters", {}).get("networks", [])[:1]:
        lines.append(
            f"Clusters and atlas networks: adjusted Rand {fit['ari']['value']:.3f} (p = {fit['ari']['p']:.3g}), "
            f"NMI {fit['nmi']['value']:.3f} against {fit['nmi']['chance']:.3f} by chance."
        )
    edges = facts["edges"]
    lines.append(f"Edges by {edges['method']} for {edges['target']}, baseline: {edges['baseline']}.")
    if "top_pairs" in edges:
        lines.append(f"Strongest pairs: {', '.join(edges['top_pairs'][:3])}.")
    if "stability_over_runs" in edges:
        s = edges["stability_over_runs"]
        lines.append(
            f"Over {s['n_maps']} runs: rank correlation {s['rank_correlation']:.2f}, sign agreement "
            f"{s['sign_agreement']:.2f}, top-edge Jaccard {s['jaccard']:.2f} ({s['jaccard_chance']:.2f} by chance)."
        )
    if "planted" in edges:
        p = edges["planted"]
        lines.append(
            f"Planted edges among the top: {p['top']:.0%} ({p['chance']:.0%} by chance); "
            f"{p['pairs_found']} of {p['n_pairs']} planted pairs on top."
        )
        for layer, q in facts.get("attention", {}).get("planted", {}).items():
            lines.append(f"Of the top edges of attention in {layer}: {q['top']:.0%}.")
    if "sanity" in facts:
        s = facts["sanity"]
        lines.append(
            f"Stability of maps with true labels {s['true']['rank_correlation']:.2f}, with shuffled labels "
            f"{s['shuffled']['rank_correlation']:.2f}: the sanity check {'passes' if s['passed'] else 'FAILS'}."
        )
    return lines
