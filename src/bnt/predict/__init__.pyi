__all__ = [
    "TrainingProfile",
    "subject_table",
    "top_connections",
    "venn_abers",
]

from ._intervals import venn_abers
from ._outliers import TrainingProfile
from ._subjects import subject_table, top_connections
