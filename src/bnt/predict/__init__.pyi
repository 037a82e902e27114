__all__ = [
    "TrainingProfile",
    "Validation",
    "subject_table",
    "top_connections",
    "validate_run",
    "venn_abers",
]

from ._intervals import venn_abers
from ._outliers import TrainingProfile
from ._subjects import subject_table, top_connections
from ._validation import Validation, validate_run
