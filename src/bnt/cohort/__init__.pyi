__all__ = [
    "Cohort",
    "CohortWriter",
    "flat",
    "load_cohort",
    "square",
]

from ._cohort import Cohort
from ._store import CohortWriter, load_cohort
from ._triangle import flat, square
