"""Which failures of TLS are final, and what their errors say."""

from __future__ import annotations

import ssl

import pytest

from stele.security.tls_refusals import TlsRefusedError, grpc_tls_failure, tls_failure


def failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("WRONG_VERSION_NUMBER", "does this port expect security_protocol=PLAINTEXT"),
        ("RECORD_LAYER_FAILURE", "the peer does not speak TLS"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "requires a certificate: set ssl_keystore_location"),
        ("TLSV1_ALERT_UNKNOWN_CA", "refuses this client's certificate or settings (tlsv1 alert"),
        ("NO_SHARED_CIPHER", "TLS failed (no shared cipher)"),
    ],
)
def test_refusals(reason: str, said: str) -> None:
    told = tls_failure(failure(reason))
    assert isinstance(told, TlsRefusedError)
    assert said in str(told)


@pytest.mark.parametrize("kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError])
def test_a_connection_that_only_ends_is_no_refusal(kind: type[ssl.SSLError]) -> None:
    told = tls_failure(kind(8, "EOF occurred in violation of protocol"))
    assert not isinstance(told, TlsRefusedError)
    assert "the connection ended in TLS" in str(told)


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            "Tls handshake failed: CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
            "the server's certificate is not accepted: certificate has expired",
        ),
        ("Hostname Verification Check failed.", "does not name 'h', where its gRPC port is"),
        ("WRONG_VERSION_NUMBER: Invalid context: OK", "its gRPC port does not speak TLS"),
        ("Socket closed", None),
        ("Connection refused", None),
    ],
)
def test_what_grpc_says(detail: str, said: str | None) -> None:
    told = grpc_tls_failure(detail, "h")
    assert told is None if said is None else said in (told or "")
