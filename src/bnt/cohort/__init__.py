"""A cohort: subjects x ROIs, in memory or memory-mapped from one folder."""

from bnt.cohort._cohort import Cohort
from bnt.cohort._store import CohortWriter, load_cohort
from bnt.cohort._triangle import flat, square

__all__ = ["Cohort", "CohortWriter", "flat", "load_cohort", "square"]
