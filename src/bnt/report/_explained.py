"""The output of ``bnt explain`` in a report: pictures with captions, warnings, and edges for the brain views.

Read from files only: ``explain.json`` says what there is, the pictures and tables lie beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bnt._words import p_words
from bnt.cohort._files import read_json, readable
from bnt.errors import BadInput

TOTAL_BYTES = 6_000_000  # of pictures a page takes in; base64 adds a third
MOST_ROWS = 5000  # of a table inside a page; edges are listed from the strongest on
STABLE = 0.3  # rank correlation of two maps below which a map is called unstable

# The pictures that bnt explain draws, in the order they are shown: caption, and the table where its name differs.
KNOWN: dict[str, tuple[str, str | None]] = {
    "attention": ("Attention of the first layer, averaged over heads and subjects; networks are framed.", None),
    "attention_networks": ("The same averaged over pairs of networks: 1 is what uniform attention would give.", None),
    "enrichment": (
        "Attention within networks over that between them: 1 is no preference. Dots are filled where a test against "
        "permuted networks gives q < 0.05; the connectomes themselves for comparison.",
        None,
    ),
    "clusters": ("Soft assignment of each ROI to OCRead's clusters, by class.", None),
    "edges": ("One number per connection; networks are framed.", None),
    "edges_by_network": ("The same averaged over pairs of networks.", None),
    "connectome": ("The strongest connections in a glass brain.", "edges.csv"),
    "surface": ("The sum of each ROI's connections, on the cortical surface.", "rois.csv"),
}

# What an edge map says, by its method: the matrix, and its strongest connections. Patterns do not say what was used.
USED = ("How much each connection moved the prediction", "moved the prediction most")
MAPS: dict[str, tuple[str, str]] = {
    "integrated-gradients": USED,
    "gradient": USED,
    "pattern": ("How each connection varies with the model's decision", "vary most with the model's decision"),
    "coefficients": ("The model's weight of each connection, times its SD", "have the largest weights, times their SD"),
}


METHODS = {
    "integrated-gradients": "integrated gradients",
    "gradient": "gradient times input",
    "pattern": "patterns (Haufe et al. 2014)",
    "coefficients": "standardised coefficients",
}


@dataclass
class Picture:
    """A PNG with its caption, and the CSV text it was drawn from where there is one."""

    name: str
    png: bytes
    caption: str
    data: str | None = None


@dataclass
class Explanation:
    """Everything found in an explain folder.

    Attributes
    ----------
    pictures, sentences, warnings
        What is shown and said.
    edges : DataFrame or None
        The edge map: roi_a, roi_b, value.
    strongest, signs : str
        What the map's strongest connections do, and what orange and blue mean, in words.
    left_out : int
        Pictures that the page has no room for.
    """

    pictures: list[Picture] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    edges: pd.DataFrame | None = None
    strongest: str = "are strongest"
    signs: str = "Orange is positive, blue negative."
    left_out: int = 0


def read_explanation(folder: Path) -> Explanation | None:
    """Return what lies in an explain folder, or None where there is none.

    Captions of the pictures that ``bnt explain`` draws are known here; ``explain.json`` may hold others as ``figures``
    (a list of ``{"file", "caption", "data"}``), and ``summary`` and ``warnings`` (sentences) beside its findings.
    """
    if not folder.is_dir() or not folder.resolve().is_relative_to(folder.parent.resolve()):
        return None
    with readable(folder, "explain again, or remove it"):
        return _read(folder)


def _read(folder: Path) -> Explanation | None:
    file = _inside(folder, "explain.json")
    try:
        notes = read_json(file, "explain again") if file is not None else {}
    except BadInput:
        notes = {}
    found = Explanation(sentences=_texts(notes.get("summary")) + findings(notes))
    found.warnings = _texts(notes.get("warnings")) + doubts(notes)
    taken = 0
    for name, caption, data in _figures(notes, folder):
        png = (folder / name).read_bytes()
        if taken + len(png) > TOTAL_BYTES:
            found.left_out += 1
            continue
        taken += len(png)
        text, more = _data(folder, str(data or Path(name).with_suffix(".csv")))
        found.pictures.append(Picture(Path(name).stem, png, caption + more, text))
    found.edges = _edges(folder)
    found.signs = signs(notes)
    if _method(notes) in MAPS:
        found.strongest = MAPS[_method(notes)][1]
    return found if found.pictures or found.edges is not None or found.sentences else None


def findings(notes: dict[str, Any]) -> list[str]:
    """Return the main findings of ``explain.json`` as sentences."""
    said = []
    attention, clusters, edges = (_part(notes, name) for name in ("attention", "clusters", "edges"))
    found, own = attention.get("enrichment_layer_1"), attention.get("enrichment_input")
    if found and own:
        said.append(
            f"Attention within functional networks is {found['ratio']:.2f} times that between them (first layer, "
            f"permutation {p_words(found['p'])}); the connectomes themselves have {own['ratio']:.2f} "
            f"({p_words(own['p'])})."
        )
    for row in clusters.get("difference", [])[:1]:
        said.append(
            f"Cluster assignments differ between the classes by d = {row['d']:.4f}; permuted classes by "
            f"{row['null_mean']:.4f} ({p_words(row['p'])})."
        )
    for fit in clusters.get("networks", [])[:1]:
        said.append(
            f"Clusters and the atlas's networks agree with an adjusted Rand index of {fit['ari']['value']:.3f} "
            f"({p_words(fit['ari']['p'])}) and NMI {fit['nmi']['value']:.3f} (chance: {fit['nmi']['chance']:.3f})."
        )
    if "top_pairs" in edges:
        said.append(f"The network pairs with the strongest edges are {', '.join(edges['top_pairs'][:3])}.")
    if "method" in edges:
        baseline = str(edges.get("baseline", ""))
        relative = f" (baseline: {baseline})" if baseline and not baseline.startswith("none") else ""
        said.append(
            f"The edge map is by {METHODS.get(edges['method'], edges['method'])} for {edges['target']}{relative}."
        )
    for name in ("attention", "clusters"):
        if "not_available" in _part(notes, name):
            said.append(str(notes[name]["not_available"]))
    return said


def checks(notes: dict[str, Any]) -> list[str]:
    """Return what an explanation's own checks found: stability, planted edges, shuffled labels."""
    said = []
    edges, sanity = _part(notes, "edges"), _part(notes, "sanity")
    stable, planted = edges.get("stability_over_runs"), edges.get("planted")
    if stable:
        said.append(
            f"Over {stable['n_maps']} runs, edge maps have rank correlation {stable['rank_correlation']:.2f}, sign "
            f"agreement {stable['sign_agreement']:.2f} and top-edge Jaccard {stable['jaccard']:.2f} (chance: "
            f"{stable['jaccard_chance']:.2f})."
        )
    if planted:
        said.append(
            f"Planted edges among the top: {planted['top']:.0%} (chance: {planted['chance']:.0%}); "
            f"{planted['pairs_found']} of {planted['n_pairs']} planted network pairs found."
        )
    for layer, found in _part(_part(notes, "attention"), "planted").items():
        said.append(f"Planted edges among the top edges of attention in {layer}: {found['top']:.0%}.")
    if sanity:
        outcome = "passes" if sanity["passed"] else "FAILS"
        said.append(
            f"Stability of edge maps with true labels {sanity['true']['rank_correlation']:.2f}, with shuffled labels "
            f"{sanity['shuffled']['rank_correlation']:.2f}: the sanity check {outcome}."
        )
    return said


def doubts(notes: dict[str, Any]) -> list[str]:
    """Return where an explanation fails a check of its own."""
    said = []
    edges, sanity = _part(notes, "edges"), _part(notes, "sanity")
    stable = edges.get("stability_over_runs") or sanity.get("true") or {}
    if stable and (stable.get("rank_correlation") or 0.0) < STABLE:
        said.append(
            f"The edge map is unstable: over {stable['n_maps']} maps its rank correlation is "
            f"{stable['rank_correlation'] or 0.0:.2f}."
        )
    if sanity and not sanity.get("passed", True):
        said.append("The edge map fails the sanity check: shuffled labels give a map as stable as the true ones.")
    planted = edges.get("planted")
    if planted and planted["pairs_found"] < planted["n_pairs"]:
        said.append(
            f"The edge map finds {planted['pairs_found']} of {planted['n_pairs']} planted network pairs: it "
            f"misses {'part of ' if planted['pairs_found'] else ''}a known effect."
        )
    return said


def signs(notes: dict[str, Any]) -> str:
    """Return what the colours of an edge map mean for its target: ``label = class``, or the label of a score."""
    method, target = _method(notes), str(_part(notes, "edges").get("target", ""))
    if method not in MAPS or not target:
        return "Orange is positive, blue negative."
    is_class = " = " in target
    if method == "pattern":
        where = f"decides for {target}" if is_class else f"predicts a higher {target}"
        return f"Orange connections are stronger where the model {where}, the others weaker."
    if is_class:
        return f"Where stronger, orange connections speak for {target}, the others against it."
    return f"Where stronger, orange connections raise the predicted {target}, the others lower it."


def captions(notes: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Return captions and tables of the known pictures; those of edges follow the method and the target."""
    if _method(notes) not in MAPS:
        return KNOWN
    colours, data = signs(notes), KNOWN["connectome"][1]
    matrix, strongest = MAPS[_method(notes)]
    return KNOWN | {
        "edges": (f"{matrix}; networks are framed. {colours}", None),
        "connectome": (f"The connections that {strongest}, in a glass brain. {colours}", data),
        "surface": (f"The sum over each ROI's connections, on the cortical surface. {colours}", "rois.csv"),
    }


def _method(notes: dict[str, Any]) -> str:
    return str(_part(notes, "edges").get("method", ""))


def _part(notes: dict[str, Any], name: str) -> dict[str, Any]:
    value = notes.get(name)
    return value if isinstance(value, dict) else {}


def _inside(folder: Path, name: str) -> Path | None:
    """Return a file of the folder; None where there is none, or where its path or a link leads out of the folder."""
    file = folder / name
    try:
        return file if file.is_file() and file.resolve().is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # no name of a file
        return None


def _data(folder: Path, name: str) -> tuple[str | None, str]:
    """Return a table as CSV text, long ones shortened, and what to add to the caption then."""
    file, matrix = _inside(folder, name), _inside(folder, name.removesuffix(".csv") + ".npy")
    if file is None and matrix is not None:
        layers = np.load(matrix, allow_pickle=False)  # (layers, V, V): the first is drawn
        buffer = StringIO()
        np.savetxt(buffer, layers[0], fmt="%.4g", delimiter=",")
        return buffer.getvalue(), ""
    if file is None:
        return None, ""
    lines = file.read_text().splitlines(keepends=True)
    if len(lines) <= MOST_ROWS + 1:
        return "".join(lines), ""
    return "".join(lines[: MOST_ROWS + 1]), f" The data here are the first {MOST_ROWS:,} rows of {file.name}."


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value] if isinstance(value, list) else []


def _figures(notes: dict[str, Any], folder: Path) -> list[tuple[str, str, str | None]]:
    """Return file, caption and data of every picture: those that are named, those that are known, then the rest."""
    given = [f for f in notes.get("figures", []) if isinstance(f, dict) and "file" in f]
    rows = {str(f["file"]): (str(f.get("caption", "")), f.get("data")) for f in given}
    for stem, (caption, data) in captions(notes).items():
        rows.setdefault(f"{stem}.png", (caption, data))
    for file in sorted(folder.glob("*.png")):
        rows.setdefault(file.name, ("", None))
    inside = [(n, c, d) for n, (c, d) in rows.items() if Path(n).name == n and _inside(folder, n) is not None]
    return [(n, c or f"{Path(n).stem.replace('_', ' ').capitalize()}.", d) for n, c, d in inside]


def _edges(folder: Path) -> pd.DataFrame | None:
    """Return the table of edge attributions as roi_a, roi_b, value, or None."""
    file = _inside(folder, "edges.csv")
    if file is None:
        return None
    try:
        table = pd.read_csv(file)
    except ValueError:
        return None
    if not {"roi_a", "roi_b", "score"} <= set(table.columns):
        return None
    return pd.DataFrame({"roi_a": table["roi_a"], "roi_b": table["roi_b"], "value": table["score"]})


def edge_matrix(edges: pd.DataFrame, rois: pd.DataFrame) -> np.ndarray | None:
    """Return attributions as a symmetric matrix in the order of the ROI table, or None where names do not match.

    ROIs may be named by their number (column ``roi``), by their label, or by their place from 0.
    """
    for names in (rois["roi"].astype(str), rois["label"].astype(str), pd.Series(range(len(rois))).astype(str)):
        place = {name: i for i, name in enumerate(names)}
        a, b = (edges[c].astype(str).map(place) for c in ("roi_a", "roi_b"))
        if a.notna().all() and b.notna().all():
            matrix = np.zeros((len(rois), len(rois)))
            rows, columns = a.to_numpy(dtype=int), b.to_numpy(dtype=int)
            matrix[rows, columns] = matrix[columns, rows] = edges["value"].to_numpy(dtype=float)
            return matrix
    return None
