"""Failures of TLS that trying again does not mend, in words for the user."""

from __future__ import annotations

import re
import ssl
from typing import Final

_ENDINGS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_NOT_BELIEVED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]*)")
_OTHER_HOST: Final = "Hostname Verification Check failed"
_NO_TLS: Final = "WRONG_VERSION_NUMBER"


class TlsRefusedError(OSError):
    """One side does not accept the certificate or the settings of the other, or the client's own
    stores cannot be read. Java's clients call this ``SslAuthenticationException``."""


def tls_failure(error: ssl.SSLError) -> OSError:
    """The error to raise for one of OpenSSL. A connection that only ended is no refusal."""
    # Only those that OpenSSL itself has raised have a reason.
    reason = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
    if isinstance(error, _ENDINGS):
        return OSError(f"the connection ended in TLS ({reason})")
    if "wrong version number" in reason or "record layer failure" in reason:
        return TlsRefusedError(
            f"the peer does not speak TLS ({reason}): does this port expect "
            "security_protocol=PLAINTEXT or SASL_PLAINTEXT?"
        )
    if "certificate required" in reason:
        return TlsRefusedError(
            f"the broker requires a certificate: set ssl_keystore_location ({reason})"
        )
    if "alert" in reason:
        return TlsRefusedError(
            f"the broker refuses this client's certificate or settings ({reason}): look at "
            "ssl_keystore_location, whose authority and dates the broker checks"
        )
    return TlsRefusedError(f"TLS failed ({reason})")


def grpc_tls_failure(detail: str, host: str) -> str | None:
    """The same of a failed call of gRPC, which has OpenSSL's words in the middle of its own. None:
    it failed for another reason, or the peer only closed the connection."""
    failed = _NOT_BELIEVED.search(detail)
    if failed is not None:
        return f"the server's certificate is not accepted: {failed[1]}"
    if _OTHER_HOST in detail:
        return f"the server's certificate does not name {host!r}, where its gRPC port is"
    return "its gRPC port does not speak TLS" if _NO_TLS in detail else None
