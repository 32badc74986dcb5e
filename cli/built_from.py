"""The commit from which this installation was built: ``deploy.wheels`` writes this file anew."""

from __future__ import annotations

from typing import Final

COMMIT: Final[str | None] = None
