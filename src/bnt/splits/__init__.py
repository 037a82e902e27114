"""Splits into training, validation and test sets, with a check that no subject, family or scan is in two sets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
