"""The node that a certificate names."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from security.node_identity import named_nodes, node_uri

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(*names: x509.GeneralName) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256())


@pytest.mark.parametrize("node_id", [0, 7, 2147483647])
def test_a_certificate_names_a_node_by_a_uri(node_id: int) -> None:
    uri = x509.UniformResourceIdentifier(node_uri(node_id))
    assert named_nodes(certificate(x509.DNSName("a"), uri)) == {node_id}


@pytest.mark.parametrize(
    "uri",
    ["stele:node:", "stele:node:-1", "stele:node:01", "stele:node:1x", "stele:broker:1",
     "https://a/stele:node:1", "stele:node:12345678901"],
)  # fmt: skip
def test_other_uris_name_no_node(uri: str) -> None:
    assert named_nodes(certificate(x509.UniformResourceIdentifier(uri))) == frozenset()


def test_a_host_name_names_no_node() -> None:
    assert named_nodes(certificate(x509.DNSName("stele:node:1"))) == frozenset()
    assert named_nodes(certificate()) == frozenset()
