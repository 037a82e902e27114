"""Who is trained on, selected on and tested on; subjects, families and scans never on two sides."""

from bnt.splits._folds import LeaveOneSiteOut, RepeatedKFold
from bnt.splits._guard import absent_classes, check_classes, check_split
from bnt.splits._protocols import PROTOCOLS, Splitter, choose_split, named_splits, protocol, split_labels, split_notices
from bnt.splits._released import ReleasedSplit
from bnt.splits._shuffle import RandomSplit, SiteStratifiedSplit, Split
from bnt.splits._table import SavedSplits, read_splits, save_splits, split_names

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
