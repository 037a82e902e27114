__all__ = [
    "PARTS",
    "PROTOCOLS",
    "LeaveOneSiteOut",
    "RandomSplit",
    "ReleasedSplit",
    "RepeatedKFold",
    "Rows",
    "SavedSplits",
    "SiteStratifiedSplit",
    "Split",
    "SplitName",
    "Splitter",
    "absent_classes",
    "canonical",
    "check_classes",
    "check_split",
    "choose_split",
    "find_leak",
    "is_table",
    "named_splits",
    "protocol",
    "read_splits",
    "save_splits",
    "split_names",
    "split_notices",
    "splits_text",
]

from ._folds import LeaveOneSiteOut, RepeatedKFold
from ._guard import absent_classes, check_classes, check_split, find_leak
from ._protocols import PROTOCOLS, Splitter, canonical, choose_split, named_splits, protocol, split_notices
from ._released import ReleasedSplit
from ._shuffle import RandomSplit, SiteStratifiedSplit
from ._split import PARTS, Rows, Split, SplitName
from ._table import SavedSplits, is_table, read_splits, save_splits, split_names, splits_text
