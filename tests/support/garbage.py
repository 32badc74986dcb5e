"""The reference cycles that a piece of work leaves behind."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cyclic_garbage() -> Iterator[Counter[str]]:
    """Count by type the objects that only the cyclic collector frees, among those that became
    garbage inside. The counter is filled at the end."""
    found: Counter[str] = Counter()
    gc.collect()
    was_enabled, flags, kept = gc.isenabled(), gc.get_debug(), len(gc.garbage)
    gc.disable()
    gc.set_debug(flags | gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage[kept:])
    finally:
        gc.set_debug(flags)
        del gc.garbage[kept:]
        if was_enabled:
            gc.enable()
