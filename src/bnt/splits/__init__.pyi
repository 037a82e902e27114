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

from ._folds import LeaveOneSiteOut, RepeatedKFold
from ._guard import absent_classes, check_classes, check_split
from ._protocols import PROTOCOLS, Splitter, choose_split, named_splits, protocol, split_labels, split_notices
from ._released import ReleasedSplit
from ._shuffle import RandomSplit, SiteStratifiedSplit, Split
from ._table import SavedSplits, read_splits, save_splits, split_names
