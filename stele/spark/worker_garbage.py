"""The collection of garbage in the Python workers of Spark.

Spark's daemon has a worker collect its garbage after each task, before the next one begins. The
collector looks at every object of every loaded module, some 100,000 with PySpark and the client.
This took 35 ms of CPU, and a task that reads a few records takes 3. Python can leave objects out of
all collections (``gc.freeze``).
"""

from __future__ import annotations

import gc
import os
import sys


class LoadedModules:
    """The modules of a worker, whose objects no collection needs to look at."""

    def __init__(self) -> None:
        self._count = 0

    def leave_out(self) -> None:
        """Call this at the end of a task, when all modules that tasks need are loaded.

        Objects that are left out are freed as before unless they are in a cycle. So this is done
        only when modules were loaded since the last time, and only where Spark collects garbage
        between tasks: in a worker that it uses again.
        """
        if len(sys.modules) > self._count and os.environ.get("SPARK_REUSE_WORKER"):
            gc.collect()  # what is garbage now would stay
            gc.freeze()
            self._count = len(sys.modules)


loaded_modules = LoadedModules()
