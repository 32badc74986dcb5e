"""A client's login on a Kafka connection (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final, Protocol, TypeVar

from stele.addresses import SecurityProtocol
from stele.errors import ApiError, AuthenticationError, ErrorCode
from stele.real import real_rng
from stele.security import dialogues
from stele.security.client_security import SaslCredentials, TokenUnavailableError
from stele.security.dialogues import ClientDialogue, LoginRefusedError
from stele.wire import kafka
from stele.wire.kafka.messages import sasl_authenticate, sasl_handshake

_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 1
"""With these a broker tells how long the session lasts. Every broker since Kafka 2.2 has them."""

_NONCE_BYTES: Final = 18

Response = TypeVar("Response", bound=kafka.Struct)


class LoginError(AuthenticationError):
    """The broker refuses the login. The same login fails at every broker and at every time."""


class Ask(Protocol):
    """Sends a request of the login, and returns its answer."""

    async def __call__(
        self, api: kafka.Api[Any, Response], version: int, message: kafka.Struct, /
    ) -> Response: ...


async def log_in(ask: Ask, name: str, credentials: SaslCredentials, has_tls: bool) -> float | None:
    """Prove who this client is. Returns for how many seconds that counts; None: as long as the
    connection lives.

    ``name`` and ``has_tls``: of the broker and the connection, for messages. Raises LoginError, and
    ApiError as ``ask`` does.
    """
    dialogue = await _dialogue(credentials)
    mechanism = credentials.mechanism
    shaken: sasl_handshake.SaslHandshakeResponse = await ask(
        sasl_handshake.API, _HANDSHAKE_VERSION, sasl_handshake.SaslHandshakeRequest(mechanism)
    )
    if shaken.error_code != ErrorCode.NONE:
        raise _handshake_error(name, mechanism, shaken, has_tls)
    token: bytes | None = dialogue.first()
    while token is not None:
        request = sasl_authenticate.SaslAuthenticateRequest(token)
        answer: sasl_authenticate.SaslAuthenticateResponse = await ask(
            sasl_authenticate.API, _AUTHENTICATE_VERSION, request
        )
        if answer.error_code != ErrorCode.NONE:
            code = _error_code(answer.error_code)
            raise LoginError(code, _refusal(name, credentials, answer.error_message or code.name))
        try:
            token = dialogue.answer(answer.auth_bytes)
        except LoginRefusedError as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            raise LoginError(code, _refusal(name, credentials, str(error))) from error
    lifetime_ms = answer.session_lifetime_ms
    return lifetime_ms / 1000 if lifetime_ms > 0 else None


async def _dialogue(credentials: SaslCredentials) -> ClientDialogue:
    nonce = base64.b64encode(real_rng().randbytes(_NONCE_BYTES)).decode()
    token = ""
    if credentials.token is not None:
        # The user's function may ask an identity provider.
        try:
            token = await asyncio.get_running_loop().run_in_executor(None, credentials.token)
        except TokenUnavailableError as error:
            raise ApiError(
                ErrorCode.NETWORK_EXCEPTION, f"no token of OAUTHBEARER: {error}"
            ) from error
        except Exception as error:
            raise LoginError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"no token of OAUTHBEARER: {type(error).__name__}: {error}",
            ) from error
    return dialogues.dialogue_of(credentials, nonce, token)


def _handshake_error(
    name: str, mechanism: str, answer: sasl_handshake.SaslHandshakeResponse, has_tls: bool
) -> LoginError:
    code = _error_code(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "none"
        reason = f"the listener has the mechanisms {enabled}: set sasl_mechanism to one of them"
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        protocol = SecurityProtocol.SSL if has_tls else SecurityProtocol.PLAINTEXT
        reason = f"the listener has no SASL: set security_protocol to {protocol.value}"
    else:
        reason = f"the broker answers {code.name}"
    return LoginError(code, f"{name}: no login by {mechanism}: {reason}")


def _refusal(name: str, credentials: SaslCredentials, reason: str) -> str:
    who = f" of user {credentials.username!r}" if credentials.username else ""
    if credentials.token is not None:
        check = "the token, its audience, its issuer and its time"
    else:
        check = f"user, password, and that the user may log in by {credentials.mechanism}"
    return f"{name}: the login{who} by {credentials.mechanism} failed: {reason} (check {check})"


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
