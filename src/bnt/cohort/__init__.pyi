__all__ = ["Cohort", "CohortWriter", "flat", "load_cohort", "square"]

from ._cohort import Cohort, load_cohort
from ._store import CohortWriter
from ._triangle import flat, square
