"""Verifies tokens of OAUTHBEARER by the keys of their issuer, fetched off the event loop.

The keys are fetched when the first token comes, at an interval, and when a token names a key that
is not known: issuers change keys. A token with an invented key id must not make a node ask its
issuer for each login, so that happens once in a while only. Keys that were fetched are used as long
as the issuer cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

from security.sasl.dialogue import Failure, Success
from security.sasl.tokens import Keys, KeysError, TokenRules, UnknownKeyError, parse_keys
from stele.world import Clock

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 16
"""The most tokens that wait for keys at a time. Anybody can invent a token whose key is not known,
and each holds one of the places for logins that are checked (``runtime.logins.listener``)."""

RETRY_S: Final = 10.0
"""The least time between two attempts to fetch keys."""

_TOO_MANY: Final = Failure("", f"{WAITING_MAX} tokens wait for keys", is_retriable=True)

Fetch = Callable[[], Awaitable[bytes]]
"""The issuer's key set. Raises OSError."""


class TokenVerifier:
    """The tokens of one issuer."""

    def __init__(
        self, rules: TokenRules, fetch: Fetch, clock: Clock, *, refresh_ms: int, source: str
    ) -> None:
        """``source``: where the keys come from, for messages."""
        self._rules = rules
        self._fetch = fetch
        self._clock = clock
        self._refresh_s = refresh_ms / 1000
        self._source = source
        self._keys: Keys | None = None
        self._tried_s = -math.inf  # by the clock's monotonic time, as the next
        self._fetched_s = -math.inf
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._failure = ""

    async def verify(self, token: str) -> Success | Failure:
        """Whom the token is of. A failure may be tried again if there are no keys now."""
        now_s = self._clock.monotonic()
        if self._keys is None:
            if not await self._refreshed():
                return _TOO_MANY
        elif now_s - self._fetched_s >= self._refresh_s and self._may_try(now_s):
            self._begin()  # the present keys are good enough meanwhile
        if self._keys is None:
            return Failure("", f"no keys from {self._source}: {self._failure}", is_retriable=True)
        try:
            return self._rules.verify(token, self._keys, self._clock.time_ms())
        except UnknownKeyError:
            pass  # the issuer may have changed its keys
        if not await self._refreshed():
            return _TOO_MANY
        try:
            return self._rules.verify(token, self._keys, self._clock.time_ms())
        except UnknownKeyError as error:
            return Failure("", str(error))

    def _may_try(self, now_s: float) -> bool:
        return now_s - self._tried_s >= RETRY_S

    async def _refreshed(self) -> bool:
        """Wait until the keys were fetched, or could not be. All who wait share one attempt. False:
        too many wait already."""
        if self._fetching is None and not self._may_try(self._clock.monotonic()):
            return True
        if self._waiting >= WAITING_MAX:
            return False
        self._waiting += 1
        try:
            await asyncio.shield(self._begin())
        finally:
            self._waiting -= 1
        return True

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._tried_s = self._clock.monotonic()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_keys())
        return self._fetching

    async def _fetch_keys(self) -> None:
        try:
            self._keys = parse_keys(await self._fetch())
        except (OSError, KeysError) as error:
            self._failure = str(error) or type(error).__name__
            logger.warning("the keys of %s cannot be fetched: %s", self._source, self._failure)
        else:
            self._fetched_s = self._clock.monotonic()
        finally:
            self._fetching = None


class UnsecuredVerifier:
    """Believes unsigned tokens: for development, where the configuration says so."""

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def verify(self, token: str) -> Success | Failure:
        """Whom the token says that it is of."""
        return self._rules.read_unsecured(token, self._clock.time_ms())
