"""Predictions for new subjects with intervals and contributions; optional centring of new sites.

A scanner shifts every edge of its site by about the same amount. ``--adapt`` moves the mean edges of each site that
training has not seen onto the mean of the training subjects, on the scale of Fisher z, where the site has 20 scans or
more. ``best`` also reads series, which cannot be moved; there the mean decision of the site is moved onto that of the
training subjects, which leaves the order of its people. A prediction then depends on who else is in the source, and
a true difference between the sites' people (more patients, older people) is removed with the scanner's.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd

from bnt.cohort import Cohort
from bnt.cohort._cohort import EdgeChange
from bnt.cohort._triangle import endpoints
from bnt.errors import BadInput
from bnt.explain._decisions import baseline_edges, centres_sites, is_network, training_part
from bnt.explain._edges import attributions, default_method, target_code
from bnt.models import find_entry
from bnt.models.classical import Best
from bnt.predict._certainty import UNAVAILABLE, CalibrationSubjects, TrainingProfile, prediction_intervals
from bnt.splits import read_splits
from bnt.training._adjustments import AT_ONCE, ENOUGH, UNKNOWN, FisherScale
from bnt.training._learner import DirectLearner
from bnt.training._trained import TrainedRun


def adapted(trained: TrainedRun, cohort: Cohort) -> tuple[TrainedRun, Cohort, dict[str, str]]:
    """Return a run and a view of a cohort that centre new sites on the training mean, and a sentence about each.

    Parameters
    ----------
    trained : TrainedRun
        Its training subjects have to be at hand.
    """
    if trained.config.adjustments.harmonise:
        raise BadInput(f"{trained.folder} already harmonises new sites: leave adapting out.", "adapt")
    training = training_part(trained.folder, trained.config)
    if training is None:
        raise BadInput(
            f"A new site is centred on the training subjects of {trained.folder}, and their cohort is not at hand: "
            "leave adapting out.",
            "adapt",
        )
    theirs, rows = training
    known = set(theirs.sites[rows].astype(str).tolist())
    moved, said = {}, {}
    sites = cohort.sites.astype(str)
    for site in np.unique(sites).tolist():
        mine = np.flatnonzero(sites == site)
        if site in known:
            continue
        if site == UNKNOWN or len(mine) < ENOUGH:
            why = "its people have no site" if site == UNKNOWN else f"{len(mine)} scans, {ENOUGH} are needed"
            said[site] = f"Not adapted: site {site} ({why})."
            continue
        moved[site] = mine
        said[site] = f"Adapted: site {site} was centred on the training mean, from its {len(mine)} unlabelled scans."
    if not moved:
        return trained, cohort, said
    if any(isinstance(model, Best) for model in trained.learner.models):
        return _centring(trained, tuple(moved)), cohort, said
    names = cohort.atlases if find_entry(trained.config.model).every_atlas else (cohort.atlas,)
    changes = {}
    for name in names:
        there, here = (theirs.with_atlas(name), cohort.with_atlas(name)) if len(names) > 1 else (theirs, cohort)
        changes[name] = _change(there, rows, here, moved)
    view = cohort.with_edges_of(changes)
    if cohort.timeseries is not None:
        try:
            trained.check(view)
            trained.learner.predict(view, np.array([0]))
        except BadInput as error:
            raise BadInput(
                f"Model {trained.config.model!r} reads time series, which are not centred: leave adapting out.", "adapt"
            ) from error
    return trained, view, said


def _centring(trained: TrainedRun, sites: tuple[str, ...]) -> TrainedRun:
    """Return a copy of a run of ``best`` that centres these new sites."""
    run, learner = copy(trained), copy(trained.learner)
    assert isinstance(learner, DirectLearner)
    learner.model = copy(learner.model)
    learner.model.centred_sites = sites
    run.learner = learner
    return run


def _change(theirs: Cohort, rows: np.ndarray, cohort: Cohort, moved: dict[str, np.ndarray]) -> EdgeChange:
    """Return what moves the mean edges of each site onto those of the training subjects."""
    scale = FisherScale.of(theirs, rows)
    centre = _mean(theirs, rows, scale)
    moves = {site: centre - _mean(cohort, mine, scale) for site, mine in moved.items()}

    def change(edges: np.ndarray, people: pd.DataFrame) -> np.ndarray:
        there = people["site"].to_numpy(str)
        z = scale.there(edges)
        for site, move in moves.items():
            z[there == site] += move
        mine = np.isin(there, list(moves))[:, None] & (edges != 0)  # 0 is an edge of a region without a signal
        return np.where(mine, scale.back(z), edges)

    return change


def _mean(cohort: Cohort, rows: np.ndarray, scale: FisherScale) -> np.ndarray:
    total = np.zeros(cohort.shape[1])
    for start in range(0, len(rows), AT_ONCE):
        total += scale.there(cohort.edges(rows[start : start + AT_ONCE])).sum(axis=0)
    return total / len(rows)


NOT_AVAILABLE = "not available: "  # and why, in place of the connections


def member_spread(trained: TrainedRun, cohort: Cohort) -> pd.DataFrame | None:
    """Return the lowest and highest of the members' predictions of the last class (or score); None of one member."""
    if trained.learner.n_members < 2:
        return None
    each = trained.learner.predict_each(cohort)[:, :, -1]  # (members, n)
    return pd.DataFrame({"members_low": each.min(axis=0), "members_high": each.max(axis=0)})


def seen_before(trained: TrainedRun, cohort: Cohort) -> pd.DataFrame:
    """Return the set of the run, by name, that each subject was in; empty for new subjects."""
    file = trained.folder / "splits.csv"
    if not file.is_file():
        return pd.DataFrame({"seen_in": [""] * len(cohort)})
    part_of = {name: part for part, names in read_splits(file)[0].parts.items() for name in names}
    return pd.DataFrame({"seen_in": [part_of.get(name, "") for name in cohort.ids.tolist()]})


def top_connections(
    trained: TrainedRun, cohort: Cohort, n_top: int = 5, method: str | None = None, rois: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the connections with the largest contributions to each subject's prediction, one row each, strongest
    first.

    Parameters
    ----------
    trained : TrainedRun
    cohort : Cohort
    n_top : int
        Connections per subject.
    method : str, optional
        See :func:`bnt.explain._edges.attributions`.
    rois : DataFrame, optional
        Names of the ROIs; by default those of the training cohort, or else of ``cohort``.

    Returns
    -------
    DataFrame
        ``participant_id, rank, connection, roi_a, roi_b, value, training_mean, contribution``. The contribution is to
        the margin of the last class (or the score); a positive one supports it. A linear model that centres sites
        compares with the training subjects of the same site, but ``training_mean`` is always that of all training
        subjects.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.predict import top_connections
    >>> table = top_connections(trained, cohort, n_top=2, method="gradient")
    >>> len(table)  # two per subject
    80
    """
    trained.check(cohort)
    training = training_part(trained.folder, trained.config)
    baseline, _ = baseline_edges(trained, training)
    # An imported scan may not know the names that the training cohort's atlas has.
    table = rois if rois is not None else cohort.rois if training is None else training[0].rois
    names = [_roi_name(row) for row in table.to_dict("records")]
    low, high = endpoints(cohort.n_rois)
    cohort, found = trained.learner.prepared(cohort), []
    for part, values in attributions(trained, cohort, np.arange(len(cohort)), baseline, method, training=training):
        for position, mine in zip(range(part.start, part.stop), values):
            edges = cohort.edges([position])[0]
            for rank, edge in enumerate(np.argsort(-np.abs(mine), kind="stable")[:n_top]):
                a, b = int(low[edge]), int(high[edge])
                found.append(
                    {
                        "participant_id": cohort.ids[position],
                        "rank": rank + 1,
                        "connection": f"{names[a]} - {names[b]}",
                        "roi_a": table["roi"].iloc[a],
                        "roi_b": table["roi"].iloc[b],
                        "value": float(edges[edge]),
                        "training_mean": float(baseline[edge]),
                        "contribution": float(mine[edge]),
                    }
                )
    return pd.DataFrame(found)


def _roi_name(row: dict) -> str:
    label = str(row["label"]).strip()
    return f"{label} ({row['roi']})" if label else f"ROI {row['roi']}"


def subject_table(
    trained: TrainedRun, cohort: Cohort, explain: int = 0, method: str | None = None, *, adapt: bool = False
) -> pd.DataFrame:
    """Return predictions with intervals and comparisons with the training data, one row per subject.

    Parameters
    ----------
    trained : TrainedRun
    cohort : Cohort
        New subjects.
    explain : int
        Number of connections to name for each subject; 0 names none.
    method : str, optional
        The method that finds them.
    adapt : bool
        Centre new sites on the training mean, from their unlabelled scans.

    Returns
    -------
    DataFrame
        ``participant_id, p_<class> ..., predicted`` as :meth:`TrainedRun.table`; then the columns of
        :func:`~bnt.predict._certainty.prediction_intervals`, of :func:`member_spread` where there are several members,
        of :meth:`~bnt.predict._certainty.TrainingProfile.compare`, ``seen_in`` (the run's set that a subject of this
        name was in: predictions of training subjects are too good), ``new_site`` (what was done about a site that
        training has not seen, where sites are harmonised or adapted), and ``top_connections``.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> from bnt.predict import subject_table
    >>> table = subject_table(trained, cohort)
    >>> len(table), "unlike_training" in table
    (40, True)
    """
    run, given, said = adapted(trained, cohort) if adapt else (trained, cohort, {})
    said = trained.learner.notes(cohort) | said
    table = run.table(given)
    config = trained.config
    names = [f"p_{c}" for c in config.task.classes] or ["predicted"]
    predicted = table[names].to_numpy(dtype=float)
    calibration = CalibrationSubjects.of(trained.folder, config)
    parts = [table, prediction_intervals(config.task, cohort.ids, predicted, calibration), member_spread(run, given)]
    profile = TrainingProfile.of(trained.folder, config)
    if profile is None:
        empty = {"distance": np.nan, "as_far": np.nan, "unlike_training": UNAVAILABLE}
        parts.append(pd.DataFrame([empty] * len(table)))
    else:
        parts.append(profile.compare(cohort))
    parts.append(seen_before(trained, cohort))
    if adapt or said:
        parts.append(pd.DataFrame({"new_site": [said.get(str(site), "") for site in cohort.sites]}))
    if explain:
        parts.append(_explained(trained, given, explain, method))
    return pd.concat([part for part in parts if part is not None], axis=1)


def _explained(trained: TrainedRun, cohort: Cohort, n_top: int, method: str | None) -> pd.DataFrame:
    """Return a column that names each subject's top connections, with the sign of what they add."""
    try:
        tops = top_connections(trained, cohort, n_top, method)
    except BadInput as error:
        if method is not None:
            raise
        return pd.DataFrame({"top_connections": [f"{NOT_AVAILABLE}{error}"] * len(cohort)})
    texts = tops["connection"] + " " + tops["contribution"].map("{:+.3g}".format)
    joined = texts.groupby(tops["participant_id"], sort=False).agg("; ".join)
    return pd.DataFrame({"top_connections": joined.reindex(cohort.ids).to_numpy()})


def explained_target(trained: TrainedRun) -> str:
    """Return in words what contributions are to, and how they were found."""
    _, name = target_code(trained, None)
    if is_network(trained):
        how = default_method(trained)
    else:
        of_site = " of the subject's site" if centres_sites(trained) else ""
        how = f"weight times deviation from the training mean{of_site}"
    kind = "the score" if trained.config.task.kind == "regression" else f"the margin of {trained.config.label} = {name}"
    return f"{kind} ({how})"
