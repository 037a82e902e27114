"""Brain Network Transformer and its baselines, from fMRI derivatives to a leak-checked score.

Names are imported when they are first used (``__init__.pyi`` lists them), so that ``import bnt`` takes milliseconds.
"""

import lazy_loader

__version__ = "0.9.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
