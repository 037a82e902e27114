__all__ = [
    "calibration_curves",
    "decision_curves",
    "forest_plot",
    "glass_brain",
    "learning_curves",
    "paired_plot",
    "roc_curves",
    "save_figure",
    "surface_map",
]

from ._brain import glass_brain, surface_map
from ._charts import forest_plot, learning_curves, paired_plot
from ._predicted import calibration_curves, decision_curves, roc_curves
from ._style import save_figure
