"""Building blocks of networks: their interface, readouts and fast kernels. Nothing here knows a cohort or a model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
