"""Predictions of new subjects: probabilities, intervals, and how usual a scan is."""

from bnt.predict._intervals import venn_abers
from bnt.predict._outliers import TrainingProfile
from bnt.predict._subjects import subject_table, top_connections

__all__ = ["TrainingProfile", "subject_table", "top_connections", "venn_abers"]
