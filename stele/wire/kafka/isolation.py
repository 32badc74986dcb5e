"""The isolation level of Fetch and ListOffsets, as their requests name them."""

from __future__ import annotations

from typing import Final

READ_COMMITTED: Final = 1
"""The answer has nothing at or above the last stable offset, and names aborted transactions."""
