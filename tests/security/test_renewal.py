"""Which certificate may take the place of another one."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509

from security.node_identity import node_uri
from security.renewal import days_left, names_host, refusal
from tests.support.tls import Authority

AUTHORITY = Authority()
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


def issued(*names: str, common_name: str = "node", days: int = 90) -> x509.Certificate:
    store = AUTHORITY.key_store(*names, common_name=common_name, valid_for=days * DAY)
    assert store.certificates is not None
    return x509.load_pem_x509_certificate(store.certificates.encode())


def why(
    old: x509.Certificate,
    new: x509.Certificate,
    now: datetime.datetime = NOW,
    dn: bool = False,
    san: bool = False,
) -> str | None:
    return refusal(old, new, now, allows_dn_changes=dn, allows_san_changes=san)


OLD = issued("a", "10.0.0.1", node_uri(1))


def test_one_with_the_same_subject_and_no_name_fewer_may() -> None:
    assert why(OLD, issued("A", "10.0.0.1", node_uri(1))) is None
    assert why(OLD, issued("b", "a", "10.0.0.1", node_uri(1))) is None
    assert why(issued(), issued("a")) is None


def test_another_subject_needs_a_setting() -> None:
    new = issued("a", "10.0.0.1", node_uri(1), common_name="other")
    assert why(OLD, new) == (
        "the subject would change from 'CN=node' to 'CN=other'; ssl.allow.dn.changes=true allows "
        "that"
    )
    assert why(OLD, new, dn=True) is None
    assert why(OLD, new, san=True) is not None


def test_lost_names_need_a_setting() -> None:
    said = why(OLD, issued("x"))
    assert said == (
        "the new certificate lacks the names DNS:a, IP:10.0.0.1, URI:stele:node:1; "
        "ssl.allow.san.changes=true allows that"
    )
    assert why(OLD, issued("x"), san=True) is None
    assert why(OLD, issued("x"), dn=True) is not None


def test_one_that_is_not_valid_now_is_never_taken() -> None:
    new = issued("a", "10.0.0.1", node_uri(1), days=10)
    ends, begins = new.not_valid_after_utc, new.not_valid_before_utc
    assert why(OLD, new, ends) is None
    assert why(OLD, new, begins) is None
    second = datetime.timedelta(seconds=1)
    for now, said in ((ends + second, "expired on"), (begins - second, "is valid from")):
        assert said in (why(OLD, new, now, dn=True, san=True) or "")


def test_the_days_that_are_left_are_counted() -> None:
    ends = OLD.not_valid_after_utc
    assert days_left(OLD, ends - 30 * DAY) == pytest.approx(30)
    assert days_left(OLD, ends + DAY) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("a.example", True),
        ("A.Example.", True),
        ("b.wild.example", True),
        ("c.b.wild.example", False),
        ("wild.example", False),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("::2", False),
        ("b", False),
    ],
)
def test_a_certificate_names_its_hosts_and_addresses(host: str, named: bool) -> None:
    assert names_host(issued("a.example", "*.wild.example", "10.0.0.1", "::1"), host) == named
