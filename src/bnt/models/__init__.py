"""Every model by name. One file per paper; the catalogue names them without importing torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
