"""All models by name. There is one file per paper, and the catalogue lists them without importing torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
