__all__ = [
    "PROTOCOLS",
    "Finding",
    "LeaveOneSiteOut",
    "RandomSplit",
    "ReleasedSplit",
    "RepeatedKFold",
    "SavedSplits",
    "SiteStratifiedSplit",
    "Split",
    "audit_splits",
    "check_split",
    "named_splits",
    "protocol",
    "read_splits",
    "save_splits",
]

from ._audit import Finding, audit_splits
from ._protocols import PROTOCOLS, SavedSplits, named_splits, protocol, read_splits
from ._split import Split, check_split, save_splits
from ._splitters import LeaveOneSiteOut, RandomSplit, ReleasedSplit, RepeatedKFold, SiteStratifiedSplit
