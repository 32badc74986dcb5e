"""How a node's process ends: its exit codes and its last line."""

from __future__ import annotations

import sys
from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1  # it could not start, or could not go on
EXIT_INTERRUPTED: Final = 130  # a second signal cut the orderly stop short


def tell(line: str) -> None:
    """Print a message for people on standard error: the logging may not be configured yet."""
    print(f"stele: {line}", file=sys.stderr, flush=True)
