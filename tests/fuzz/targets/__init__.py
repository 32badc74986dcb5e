"""What is fuzzed. A file of this folder is a target, and nothing else has to name it."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable
from typing import Final

from tests.fuzz.cost import Target

_MODULES = [
    importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
]

TARGETS: Final[dict[str, Callable[[random.Random], Target]]] = {
    module.TARGET.name: module.TARGET for module in _MODULES
}
