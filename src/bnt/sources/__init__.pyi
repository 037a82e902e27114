__all__ = ["Denoising", "fetch_abide", "import_cohort", "read_cohort", "simulate_cohort"]

from ._abide import fetch_abide
from ._ingest import import_cohort, read_cohort
from ._motion import Denoising
from ._simulate import simulate_cohort
