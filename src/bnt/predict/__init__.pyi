__all__ = ["TrainingProfile", "Validation", "subject_table", "top_connections", "validate_run", "venn_abers"]

from ._certainty import TrainingProfile, venn_abers
from ._subjects import subject_table, top_connections
from ._validation import Validation, validate_run
