"""The sessions of a node whose logins rest on the metadata, and their end when that is gone.

A SCRAM credential that is removed, and a delegation token that is removed or expires, end the
sessions that began by them: Kafka's connections and the streams of gRPC. Both are looked at when an
image changes credentials or tokens, in slices, before the image counts as applied. So the answer to
an administrator says that no live broker serves such a session any more. A token also has a timer
while sessions hold it, because time alone ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from security.sasl.basis import why_gone
from security.sasl.dialogue import Basis, CredentialStore, HeldToken, TokenStore
from storage.turns import SLICE_STEPS

_TIMER_MAX_S: Final = 60.0
"""A timer looks at the wall clock at least this often: somebody may set that meanwhile."""


class Session(Protocol):
    """What is served by a login."""

    def revoke(self, why: str) -> None:
        """End at once: what the login rests on is gone. It must not be in the way of others, so it
        takes no turn of its own."""
        ...


class OpenSessions:
    """A ``MetadataSubscriber``, shared by the listeners of a node."""

    def __init__(self, credentials: CredentialStore, tokens: TokenStore | None = None) -> None:
        """``tokens`` None: there are none."""
        self._credentials = credentials
        self._tokens = tokens
        # No basis is here without a session. A dict keeps the order of the logins.
        self._sessions: dict[Basis, dict[Session, None]] = {}
        self._timers: dict[HeldToken, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def why_gone(self, basis: Basis | None) -> str | None:
        """Why a session that rests on this is not to be served; None: it is."""
        if basis is None:
            return None
        return why_gone(basis, self._credentials, self._tokens)

    def add(self, session: Session, basis: Basis | None) -> None:
        """``session.revoke`` is called when the basis is gone, until ``remove``. The caller has
        asked ``why_gone`` in the same turn of the event loop."""
        if basis is None:
            return
        self._sessions.setdefault(basis, {})[session] = None
        if isinstance(basis, HeldToken) and basis not in self._timers:
            self._set_timer(basis)

    def remove(self, session: Session, basis: Basis | None) -> None:
        """Nothing is done for a session that is not here."""
        if basis is None:
            return
        found = self._sessions.get(basis, {})
        found.pop(session, None)
        if not found:
            self._forget(basis)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        before = delta.image
        if (
            before.scram_credentials is image.scram_credentials
            and before.delegation_tokens is image.delegation_tokens
        ):
            return None
        return self._look()

    def _look(self) -> Iterator[None]:
        for count, basis in enumerate([*self._sessions], 1):
            if (why := self.why_gone(basis)) is not None:
                yield from self._end(basis, why)
            elif isinstance(basis, HeldToken) and basis in self._timers:
                self._set_timer(basis)  # its expiry may have changed
            if not count % SLICE_STEPS:
                yield

    def _end(self, basis: Basis, why: str) -> Iterator[None]:
        for count, session in enumerate([*self._sessions.get(basis, ())], 1):
            self.remove(session, basis)
            session.revoke(why)
            if not count % SLICE_STEPS:
                yield

    def _forget(self, basis: Basis) -> None:
        self._sessions.pop(basis, None)
        if isinstance(basis, HeldToken) and (timer := self._timers.pop(basis, None)) is not None:
            timer.cancel()

    # ------------------------------------------------------------------ time

    def _set_timer(self, held: HeldToken) -> None:
        if (timer := self._timers.pop(held, None)) is not None:
            timer.cancel()
        token = None if self._tokens is None else self._tokens.find(held.token_id)
        if self._tokens is None or token is None:
            return
        left_s = (token.expiry_ms + 1 - self._tokens.now_ms) / 1000
        loop = asyncio.get_running_loop()
        self._timers[held] = loop.call_later(
            min(max(0.0, left_s), _TIMER_MAX_S), self._time_is_up, held
        )

    def _time_is_up(self, held: HeldToken) -> None:
        self._timers.pop(held, None)
        if (why := self.why_gone(held)) is None:
            self._set_timer(held)
        else:
            self._go_on(self._end(held, why))

    def _go_on(self, steps: Iterator[None]) -> None:
        for _ in steps:
            asyncio.get_running_loop().call_soon(self._go_on, steps)
            return
