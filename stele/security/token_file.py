"""A token of OAUTHBEARER that somebody else keeps valid, in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A ``TokenSource``. The file is read at each login, so a renewed token counts from then on."""

    path: str

    @classmethod
    def of_url(cls, url: str) -> TokenFile:
        """``url``: it begins with ``file:``."""
        return cls(url2pathname(urlsplit(url).path))

    def __call__(self) -> str:
        """Raises OSError, and ValueError for an empty file."""
        token = Path(self.path).read_text(encoding="utf-8").strip()
        if not token:
            raise ValueError(f"{self.path} is empty")
        return token
