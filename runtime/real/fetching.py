"""The content of a URL, read in a thread: ``Network.fetch``."""

from __future__ import annotations

import asyncio
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NoReturn

from stele.security.answer_content import content_of


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The content must come from where the configuration says."""

    def redirect_request(self, req: Any, fp: Any, code: int, *more: Any) -> NoReturn:
        raise OSError(f"{req.full_url} leads elsewhere (status {code})")


async def fetch(url: str, timeout_s: float) -> bytes:
    """See ``Network.fetch``."""
    work = asyncio.get_running_loop().run_in_executor(None, _fetch, url, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise OSError(f"{url}: nothing whole came within {timeout_s:g} s") from None


def _fetch(url: str, timeout_s: float) -> bytes:
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("https", "file"):
        raise OSError(f"{url}: only https and file are read")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return content_of(answer, timeout_s, time.monotonic)
    except urllib.error.URLError as error:
        raise OSError(f"{url}: {error.reason}") from error
    except OSError as error:
        raise OSError(f"{url}: {str(error) or type(error).__name__}") from error
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error
