"""Building blocks of networks: interface, readouts and fast kernels. They do not depend on cohorts or models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
