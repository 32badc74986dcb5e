"""A client whose security protocol is not that of the listener to which it connects."""

from __future__ import annotations

from stele.addresses import SecurityProtocol
from stele.security.client_security import ClientSecurity
from stele.world import PortFacts


def why_misfit(security: ClientSecurity, port: PortFacts) -> str | None:
    """What the port speaks and what is to be set; None if the client speaks it, too."""
    own = security.protocol
    if port.has_tls == own.has_tls and port.mechanisms is None:
        if port.needs_certificate and security.tls.keystore.is_empty:
            return "the broker requires a certificate: set ssl_keystore_location"
        return None
    if port.mechanisms is None:
        return (
            f"this port speaks TLS, and security_protocol is {own.value}: set it to SSL, or to "
            "SASL_SSL if brokers ask for a login"
        )
    wanted = _protocol(port.has_tls, bool(port.mechanisms))
    if wanted is own:
        return None
    login = ""
    if port.mechanisms:
        login = f", with sasl_mechanism one of {', '.join(port.mechanisms)}"
    return (
        f"this port is {wanted.value}, and security_protocol is {own.value}: set it to "
        f"{wanted.value}{login}"
    )


def _protocol(has_tls: bool, has_sasl: bool) -> SecurityProtocol:
    for each in SecurityProtocol:
        if (each.has_tls, each.has_sasl) == (has_tls, has_sasl):
            return each
    raise AssertionError("the four protocols are all there are")
