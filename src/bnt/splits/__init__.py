"""Who is trained on, selected on and tested on; subjects, families and scans never on two sides."""

from bnt.splits.classes import absent_classes, check_classes
from bnt.splits.folds import LeaveOneSiteOut, RepeatedKFold
from bnt.splits.guard import check_split
from bnt.splits.named import named_splits
from bnt.splits.notices import split_notices
from bnt.splits.protocols import PROTOCOLS, Splitter, choose_split, protocol, split_labels
from bnt.splits.released import ReleasedSplit
from bnt.splits.shuffle import RandomSplit, SiteStratifiedSplit, Split
from bnt.splits.table import SavedSplits, read_splits, save_splits, split_names

__all__ = [
    "PROTOCOLS",
    "LeaveOneSiteOut",
    "RandomSplit",
    "ReleasedSplit",
    "RepeatedKFold",
    "SavedSplits",
    "SiteStratifiedSplit",
    "Split",
    "Splitter",
    "absent_classes",
    "check_classes",
    "check_split",
    "choose_split",
    "named_splits",
    "protocol",
    "read_splits",
    "save_splits",
    "split_labels",
    "split_names",
    "split_notices",
]
