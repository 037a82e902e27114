__all__ = [
    "PROTOCOLS",
    "LeaveOneSiteOut",
    "RandomSplit",
    "ReleasedSplit",
    "RepeatedKFold",
    "SavedSplits",
    "SiteStratifiedSplit",
    "Split",
    "check_split",
    "named_splits",
    "protocol",
    "read_splits",
    "save_splits",
]

from ._folds import LeaveOneSiteOut, RepeatedKFold
from ._guard import check_split
from ._protocols import PROTOCOLS, named_splits, protocol
from ._released import ReleasedSplit
from ._shuffle import RandomSplit, SiteStratifiedSplit
from ._split import Split
from ._table import SavedSplits, read_splits, save_splits
