"""A cohort: subjects x ROIs, in memory or memory-mapped from one folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
