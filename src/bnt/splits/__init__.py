"""Who is trained on, selected on and tested on; subjects, families and scans are never on two sides."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
