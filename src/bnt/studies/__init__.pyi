__all__ = [
    "PowerLaw",
    "Slurm",
    "Study",
    "Tuning",
    "Variant",
    "comparison_table",
    "delong",
    "fit_power_law",
    "holm",
    "paired_test",
    "permutation_test",
    "run_table",
    "summarise",
    "summary_table",
]

from ._job import Variant
from ._results import comparison_table, run_table, summary_table
from ._sample_size import PowerLaw, fit_power_law
from ._slurm import Slurm
from ._statistics import delong, holm, paired_test, permutation_test, summarise
from ._study import Study
from ._tuning import Tuning
