"""A cohort: subjects x ROIs, in memory or memory-mapped from one folder."""

from bnt.cohort.cohort import Cohort
from bnt.cohort.store import CohortWriter, load_cohort
from bnt.cohort.triangle import flat, square

__all__ = ["Cohort", "CohortWriter", "flat", "load_cohort", "square"]
