"""Whether a listener may exchange its certificate for another one while it serves.

Clients and nodes know a listener by its certificate. So a certificate that replaces it must have
the same subject and no name fewer, unless the node's configuration allows more (KIP-978). One that
is not valid now is never taken: the old one is at least not worse.
"""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509

from stele.security.stores import alternative_names


def refusal(
    old: x509.Certificate,
    new: x509.Certificate,
    now: datetime.datetime,
    *,
    allows_dn_changes: bool,
    allows_san_changes: bool,
) -> str | None:
    """Why ``new`` must not take the place of ``old``; None if it may."""
    if now > new.not_valid_after_utc:
        return f"the new certificate expired on {new.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if now < new.not_valid_before_utc:
        return f"the new certificate is valid from {new.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    was, becomes = old.subject.rfc4514_string(), new.subject.rfc4514_string()
    if old.subject != new.subject and not allows_dn_changes:
        return (
            f"the subject would change from {was!r} to {becomes!r}; "
            "ssl.allow.dn.changes=true allows that"
        )
    lost = sorted(alternative_names(old) - alternative_names(new))
    if lost and not allows_san_changes:
        return (
            f"the new certificate lacks the names {', '.join(lost)}; "
            "ssl.allow.san.changes=true allows that"
        )
    return None


def days_left(certificate: x509.Certificate, now: datetime.datetime) -> float:
    """How long a certificate is valid; negative after its end."""
    return (certificate.not_valid_after_utc - now) / datetime.timedelta(days=1)


def names_host(certificate: x509.Certificate, host: str) -> bool:
    """Whether clients that connect to this host accept the certificate for it."""
    names = alternative_names(certificate)
    plain = host.lower().rstrip(".")
    try:
        wanted = f"IP:{ipaddress.ip_address(plain)}"  # an IPv6 address has several notations
    except ValueError:
        wanted = f"DNS:*.{plain.partition('.')[2]}"
    return wanted in names or f"DNS:{plain}" in names
