"""Whether the files of stores have changed."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stele.security.client_security import TlsSettings

FileStates = Mapping[str, tuple[int, int, int] | None]
"""By path: when the file changed, its size and its inode; None if it cannot be looked at."""


def look_at(tls: TlsSettings) -> FileStates:
    """The state of each file of the stores."""
    found: dict[str, tuple[int, int, int] | None] = {}
    for store in (tls.keystore, tls.truststore):
        if store.location is not None:
            try:
                seen = os.stat(store.location)
            except OSError:
                found[store.location] = None
            else:
                found[store.location] = seen.st_mtime_ns, seen.st_size, seen.st_ino
    return found
