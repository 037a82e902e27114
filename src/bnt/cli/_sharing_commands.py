"""The commands export and bids-app. Each class is one command; its fields are the options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bnt.errors import BadInput


@dataclass(frozen=True)
class Export:
    """Write a finished run as a model to share: weights (safetensors), settings (JSON) and a card for a model hub.

    No subject is inside: no id, scan, label or prediction; no path of this machine, no code, no pickle. `bnt predict`
    and `bnt validate` open the folder, or the model on the hub (hf://owner/name), without the calibrated intervals and
    the comparison with the training people, which need these people.
    """

    trained_run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`, or one of the runs of a study (STUDY/runs/...)."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The folder to write."""
    hub: Annotated[str | None, tyro.conf.arg(metavar="hf://OWNER/NAME")] = None
    """Also upload it there, with the account of `hf auth login`; the repository is private if it is new."""
    public: bool = False
    """Make a new repository public."""
    license: str = ""
    """The hub's name of a licence for the card, such as mit or cc-by-4.0; none is claimed without it."""
    onnx: bool = False
    """Also write model.onnx, which is compared with torch on invented people and must agree to 1e-5."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    overwrite: bool = False
    """Replace an existing exported model."""

    def run(self) -> None:
        """Export, upload if asked, and say where the model is."""
        from bnt.cli._result_commands import refuse_study
        from bnt.training import export_run
        from bnt.training._export import push
        from bnt.training._trained import repository

        refuse_study(self.trained_run)
        if self.hub is not None:
            repository(self.hub)  # refuses a word that is none, before anything is written
        elif self.public:
            raise BadInput("--public is for --hub only: name a repository, or leave it out.", "public")
        out = export_run(
            self.trained_run,
            self.out,
            licence=self.license,
            onnx=self.onnx,
            overwrite=self.overwrite,
            model_file=self.model_file,
        )
        for file in sorted(out.iterdir()):
            size = file.stat().st_size
            print(f"{file} ({size / 1e6:.1f} MB)" if size > 1e5 else f"{file} ({size / 1e3:.1f} kB)")
        if not self.license:
            print("The card claims no licence: --license mit (or another) does.")
        if self.hub is not None:
            print(f"Uploaded to {push(out, self.hub, public=self.public)}")
            print(f"Use it with: bnt predict {self.hub} COHORT")
        else:
            print(f"Use it with: bnt predict {out} COHORT")


PIPELINES = ("xcp_d", "xcpd", "xcp-d", "fmriprep", "cpac")


@dataclass(frozen=True)
class BidsApp:
    """Run as a BIDS App: bids_dir output_dir participant|group.

    participant: read the derivatives of each participant (fMRIPrep's images with --atlas, XCP-D's or C-PAC's series),
    check them, and write a cohort of their scans to output_dir/sub-LABEL; participants may be run at the same time.
    group: make the cohort of all of them (output_dir/cohort), compare models (output_dir/study) and write the page
    output_dir/study/report.html. An interrupted level resumes when it is repeated.
    """

    bids_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="bids_dir")]
    """The BIDS data set, with participants.tsv and derivatives/; or a folder of derivatives."""
    output_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="output_dir")]
    """Where results go."""
    analysis_level: Annotated[
        Literal["participant", "group"], tyro.conf.Positional, tyro.conf.arg(metavar="{participant,group}")
    ]
    """Which level to run."""
    participant_label: tuple[str, ...] = ()
    """Participants to take, with or without sub-; all when not given."""
    derivatives: Path | None = None
    """The derivatives to read; derivatives/xcp_d, fmriprep or cpac of bids_dir when not given."""
    task_id: str | None = None
    """Take only scans of this task."""
    atlas: tuple[str, ...] = ()
    """Which atlas or atlases, as for bnt import; fMRIPrep's images need one."""
    runs: Literal["average", "first", "separate", "sessions", "concatenate"] = "average"
    """Several sessions or runs of a participant, as for bnt import."""
    label: str = "diagnosis"
    """Column of participants.tsv to predict (group)."""
    positive: str | None = None
    """The positive class of two (group); by default the last in sorted order."""
    models: tuple[str, ...] = ("best", "bnt", "svm")
    """Models to compare (group), as for bnt compare."""
    splits: int = 20
    """Number of splits (group)."""
    n_cpus: int = 0
    """Processes; 0 is one per core."""

    def run(self) -> int:
        """Run one level."""
        if not self.bids_dir.is_dir():
            raise BadInput(f"{self.bids_dir} is not a folder: give a BIDS data set.", "bids_dir")
        self.output_dir.mkdir(parents=True, exist_ok=True)
        describe_output(self.output_dir)
        return self._participants() if self.analysis_level == "participant" else self._group()

    def _source(self) -> tuple[Path, dict[str, Any]]:
        """Return the derivatives and the settings of their import; say which derivatives are taken."""
        from bnt._words import say

        source = self.derivatives
        if source is None:
            there = [folder for name in PIPELINES if (folder := self.bids_dir / "derivatives" / name).is_dir()]
            source = there[0] if there else self.bids_dir
            more = (
                f"; {', '.join(f.name for f in there[1:])} {'is' if len(there) == 2 else 'are'} not read"
                if there[1:]
                else ""
            )
            say(f"The derivatives in {source} are read{more} (--derivatives).")
        settings: dict[str, Any] = {"runs": self.runs, "jobs": self.n_cpus, "work": self.output_dir / ".extracted"}
        settings |= {"atlas": self.atlas} if self.atlas else {}
        table = self.bids_dir / "participants.tsv"
        settings |= {"participants": table} if table.is_file() else {}
        return source, settings

    def _participants(self) -> int:
        """Make a cohort of each participant's scans; those that are there are kept."""
        from bnt.sources._ingest import import_cohort
        from bnt.sources._names import list_files

        source, settings = self._source()
        found = sorted({name.participant for name in list_files(source, None) if "sub" in name.entities})
        task = f"_*task-{self.task_id}_*" if self.task_id else "_*"
        for name in wanted(found, self.participant_label, source):
            out = self.output_dir / name
            if (out / "cohort.json").is_file():
                print(f"{out} is there already")
                continue
            cohort = import_cohort(source, out, pattern=f"{name}{task}", **settings)
            print(f"{out}: {len(cohort)} scan{'s' * (len(cohort) != 1)}, {', '.join(cohort.atlases) or cohort.n_rois}")
        return 0

    def _group(self) -> int:
        """Make the cohort of all, compare models, and write the page."""
        from bnt.cli._options import Machine, Splits, Target
        from bnt.cli._result_commands import Report
        from bnt.cli._study_commands import Compare
        from bnt.sources._ingest import import_cohort

        cohort, study = self.output_dir / "cohort", self.output_dir / "study"
        if (cohort / "cohort.json").is_file():
            print(f"{cohort} is there already and is used; delete it to import again.")
        else:
            source, settings = self._source()
            pattern = f"*_task-{self.task_id}_*" if self.task_id else None
            whole = import_cohort(source, cohort, pattern=pattern, **settings)
            if self.participant_label:
                people = wanted(sorted(set(whole.ids.tolist())), self.participant_label, source)
                whole.select(people).save(cohort, overwrite=True)
        code = Compare(
            cohort,
            study,
            models=self.models,
            atlas=("all",) if len(self.atlas) > 1 else (),
            splitting=Splits(splits=self.splits),
            target=Target(label=self.label, positive=self.positive),
            machine=Machine(jobs=self.n_cpus),
        ).run()
        Report(study).run()
        return code


def wanted(found: list[str], labels: tuple[str, ...], source: Path) -> list[str]:
    """Return the participants of these labels, with or without ``sub-``; all without labels."""
    if not found:
        raise BadInput(f"{source} has no file of a participant (sub-...): give a folder of derivatives.", "derivatives")
    asked = [f"sub-{label.removeprefix('sub-')}" for label in labels]
    missing = next((name for name in asked if name not in found), None)
    if missing is not None:
        raise BadInput(
            f"{source} has no scan of {missing}; it has {', '.join(found[:5])} and so on.", "participant_label"
        )
    return asked or found


def describe_output(folder: Path) -> None:
    """Write ``dataset_description.json``, which BIDS asks of a folder of derivatives."""
    import json

    from bnt import __version__
    from bnt.cohort._files import write_atomic

    made_by = [{"Name": "bnt", "Version": __version__}]
    facts = {"Name": "bnt", "BIDSVersion": "1.10.0", "DatasetType": "derivative", "GeneratedBy": made_by}
    write_atomic(folder / "dataset_description.json", json.dumps(facts, indent=2) + "\n")
