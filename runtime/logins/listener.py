"""How the clients of one listener log in, on both planes.

The dialogues are machines (``security.sasl``). Their slow work is done here, off the event loop.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from runtime.audit_events import audit_failed_connection, host_of
from runtime.logins.sessions import OpenSessions
from runtime.metrics.registry import MetricsRegistry
from security.audit import Event
from security.delegation_tokens import salted_keys
from security.sasl.dialogue import (
    CheckPassword,
    CheckToken,
    DeriveKeys,
    Dialogue,
    Failure,
    Step,
    Success,
    Work,
)
from security.sasl.plain import password_is_right
from stele.world import Clock, Rng
from world.compute import Compute

logger = logging.getLogger(__name__)

_WORK_MAX: Final = 64
"""The most passwords and tokens of a listener that are being checked off the event loop."""

_LOG_S: Final = 1.0
"""How far apart lines about failed logins are."""

_REASON_MAX: Final = 600
"""Longer reasons are cut off. A stranger may send a name of 64 KiB once a second, and would fill
the disk with lines."""

_NONCE_BYTES: Final = 18

Begin = Callable[[str], Dialogue]
"""Begins a dialogue; takes a nonce, random and printable."""

VerifyToken = Callable[[str], Awaitable[Success | Failure]]


class LoggingIn(Protocol):
    """The client that logs in, for the log."""

    @property
    def peer(self) -> str: ...

    @property
    def listener_name(self) -> str: ...


class AuthenticationMetrics:
    """The counters of all gates of a node."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self.succeeded = registry.counter(
            "stele_successful_authentications",
            "Logins that succeeded (successful-authentication-total).",
        )
        self.failed = registry.counter(
            "stele_failed_authentications",
            "Logins that failed (failed-authentication-total).",
        )
        self.repeated = registry.counter(
            "stele_successful_reauthentications",
            "Clients that proved again who they are (successful-reauthentication-total).",
        )
        self.repeat_failed = registry.counter(
            "stele_failed_reauthentications",
            "Clients that could not prove again who they are (failed-reauthentication-total).",
        )
        self.expired = registry.counter(
            "stele_expired_connections_killed",
            "Connections closed because a request came after the end of their session"
            " (expired-connections-killed-count).",
        )
        self.revoked = registry.counter(
            "stele_revoked_sessions",
            "Connections and streams ended because the credential or delegation token of their"
            " login was removed, or the token expired.",
        )


class ListenerLogins:
    """How clients of one listener log in. All connections of the listener share it."""

    def __init__(
        self,
        dialogues: Mapping[str, Begin],
        *,
        clock: Clock,
        rng: Rng,
        compute: Compute,
        metrics: AuthenticationMetrics,
        sessions: OpenSessions,
        failure_delay_ms: int,
        session_ms: Mapping[str, int],
        verify_token: VerifyToken | None = None,
    ) -> None:
        """``dialogues``: by mechanism, those that are enabled. ``session_ms``: by mechanism, how
        long a login lasts; 0 or absent: as long as the connection. ``verify_token`` is for
        OAUTHBEARER."""
        self._dialogues = dialogues
        self._clock = clock
        self._rng = rng
        self._compute = compute
        self._session_ms = session_ms
        self._verify_token = verify_token
        self.metrics: Final = metrics
        self.sessions: Final = sessions
        self._failure_delay_s = failure_delay_ms / 1000
        self._working = 0
        # When a failure was last logged, and how many were not logged since then.
        self._logged_s = -math.inf
        self._left_out = 0

    @property
    def mechanisms(self) -> list[str]:
        return list(self._dialogues)

    def begin(self, mechanism: str) -> Dialogue | None:
        """A new dialogue; None: the mechanism is not enabled."""
        begin = self._dialogues.get(mechanism)
        if begin is None:
            return None
        return begin(base64.b64encode(self._rng.randbytes(_NONCE_BYTES)).decode())

    @property
    def now_ms(self) -> int:
        """The wall clock's time."""
        return self._clock.time_ms()

    def lifetime_ms(self, mechanism: str, success: Success) -> int | None:
        """How long the session lasts from now on; None: it has no end."""
        ends = []
        if configured := self._session_ms.get(mechanism, 0):
            ends.append(configured)
        if success.expires_ms is not None:
            ends.append(max(1, success.expires_ms - self._clock.time_ms()))
        return min(ends, default=None)

    async def step(self, dialogue: Dialogue, token: bytes) -> Step:
        """The dialogue's step for a token, with all work done. It never raises: an error of ours
        becomes a failure that may be tried again."""
        try:
            step = dialogue.step(token)
            while isinstance(step, CheckPassword | CheckToken | DeriveKeys):
                result = await self._done(step)
                if isinstance(result, Failure) and result.is_retriable:
                    return result
                step = dialogue.resume(result)
        except Exception:
            logger.exception("a dialogue of SASL failed")
            return Failure("", "caused an unexpected error", is_retriable=True)
        return step

    @property
    def verifies_tokens(self) -> bool:
        """Whether a token of OAUTHBEARER is a login here."""
        return self._verify_token is not None

    async def verified(self, token: str) -> Success | Failure:
        """The verdict on a token of OAUTHBEARER, with its principal."""
        result = await self._done(CheckToken(token))
        assert isinstance(result, Success | Failure)
        return result

    async def _done(self, work: Work) -> bool | tuple[bytes, bytes] | Success | Failure:
        """The result of slow work. A failure may be that of the work itself."""
        if self._working >= _WORK_MAX:
            return Failure("", f"{self._working} other logins are being checked", is_retriable=True)
        self._working += 1
        try:
            if isinstance(work, CheckToken):
                if self._verify_token is None:
                    return Failure("", "there is nobody to verify tokens", is_retriable=True)
                return await self._verify_token(work.token)
            if isinstance(work, DeriveKeys):
                return await self._derive_keys(work)
            return await self._check_password(work)
        finally:
            self._working -= 1

    async def _check_password(self, work: CheckPassword) -> bool | Failure:
        credential = work.credential
        try:
            is_right = await self._compute.call(
                password_is_right,
                work.mechanism.name,
                work.password,
                credential.salt,
                credential.stored_key,
                credential.iterations,
            )
        except OSError as error:
            return Failure("", f"no password can be checked now: {error}", is_retriable=True)
        return is_right is True

    async def _derive_keys(self, work: DeriveKeys) -> tuple[bytes, bytes] | Failure:
        try:
            stored_key, server_key = await self._compute.call(
                salted_keys, work.mechanism.name, work.password, work.salt, work.iterations
            )
        except OSError as error:
            return Failure("", f"no token can be checked now: {error}", is_retriable=True)
        return stored_key, server_key

    async def delay_failure(self, came_s: float) -> None:
        """Wait until the answer to a failed token may go out. ``came_s``: when the token came, in
        the loop's time. The delay makes guessing slow. It counts from there and not from the end of
        the work. Otherwise the time would tell which users exist: only some take a hash."""
        await asyncio.sleep(came_s + self._failure_delay_s - asyncio.get_running_loop().time())

    def note_revoked(self, who: LoggingIn, why: str) -> None:
        """A session ends before its time."""
        self.metrics.revoked.value += 1
        self.log_failure(who, f"is closed: {why}")

    def log_failure(self, who: LoggingIn, what: str) -> None:
        """At most once a second: a client that fails may come again as fast as it can."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < _LOG_S:
            self._left_out += 1
            return
        what = what[:_REASON_MAX]
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        logger.warning("%s on %s %s%s", who.peer, who.listener_name, what, more)
        audit_failed_connection(
            Event.LOGIN_FAILED,
            who.listener_name,
            host_of(who.peer),
            what,
            time_ms=self._clock.time_ms(),
            left_out=self._left_out,
        )
        self._logged_s, self._left_out = now_s, 0
