"""Building blocks: attention, encoder, node features, readouts. Nothing here knows a cohort or a model by name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
