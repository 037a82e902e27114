"""The model card: what a trained model is, what it was tested on, and what it is not. It names no subject."""

from __future__ import annotations

from typing import Any

from bnt.models import find_entry
from bnt.training._config import RunConfig

SHOWN = ("auroc", "accuracy", "sensitivity", "specificity", "balanced_accuracy", "brier", "calibration_error")
SHOWN_SCORE = ("mse", "mae", "r", "r2")


def _row(name: str, metrics: dict[str, Any]) -> str:
    interval = metrics.get(f"{name}_ci")
    span = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
    return f"| {name.replace('_', ' ')} | {metrics[name]:.3f} | {span} |"


def _in_words(config: RunConfig) -> str:
    """Return what the recipe did to this model; all its fields are in ``config.toml``."""
    recipe = config.recipe
    if not find_entry(config.model).trains_in_epochs:
        return "the model fits itself; only whether validation joins training is the recipe's"
    chosen = {
        "best": "the best epoch on validation",
        "smoothed": f"the best mean of {recipe.smooth} epochs on validation",
        "last": "the last epoch",
    }
    parts = [
        f"at most {recipe.epochs} epochs in batches of {recipe.batch_size}",
        f"{'AdamW' if recipe.decoupled else 'Adam'}, rate {recipe.lr:g} to {recipe.lr_end:g}",
        f"weight decay {recipe.weight_decay:g}",
        *([f"mixup {recipe.mixup:g}"] if recipe.mixup else []),
        *([f"weights averaged with decay {recipe.ema:g}"] if recipe.ema else []),
        f"tested: {chosen[recipe.select]}",
    ]
    return ", ".join(parts)


def model_card(config: RunConfig, report: dict[str, Any]) -> str:
    """Return the card as Markdown."""
    test, n = report["test"], report["n"]
    shown = SHOWN_SCORE if config.task.kind == "regression" else SHOWN
    positive = report["positive_class"]
    called = f" The positive class is {positive!r}." if positive is not None else ""
    options = ", ".join(f"{k}={v}" for k, v in config.options.items()) or "defaults"
    members = f", mean of {config.recipe.n_members} networks" if config.recipe.n_members > 1 else ""
    refit = " The tested weights were trained again on training + validation." if config.recipe.refit else ""
    versions = ", ".join(f"{k} {v}" for k, v in report["versions"].items())
    return "\n".join(
        [
            f"# {config.model}: {config.label} from {config.kind} connectomes of {config.n_rois} ROIs",
            "",
            "**Not a diagnostic device.** A research model: its probabilities describe groups of people like those it",
            "was trained on and must not decide about the care of any person.",
            "",
            "## Tested once",
            "",
            f"{n['test']} people of the test part.{called}",
            "",
            "| metric | value | 95 % interval |",
            "|---|---|---|",
            *[_row(name, test) for name in shown if name in test],
            "",
            "## How it was made",
            "",
            f"- Model `{config.model}` ({options}), {report['n_parameters']:,} parameters{members}.",
            f"- Recipe `{config.recipe_name}`: {_in_words(config)}.{refit}",
            f"- Split `{config.split or 'given'}`: {n['train']} training, {n['validation']} validation, "
            f"{n['test']} test (sha256 {config.split_sha256[:16]}).",
            f"- Data sha256 {config.data_sha256[:16]}; weights sha256 {report['weights_sha256'][:16]}.",
            f"- Seed {config.seed}, {config.threads} thread(s), {config.device}; {versions}.",
            f"- {report['seconds']:.0f} s, {report['cpu_seconds']:.0f} CPU-seconds, "
            f"{report['peak_memory_mb']} MB of memory at most.",
            "",
        ]
    )
