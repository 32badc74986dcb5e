"""Names of a module that are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a module (PEP 562). ``homes``: where each name is defined."""

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    return load
