"""Key stores and trust stores of every form, and errors that name file, block and reason."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from hypothesis import given
from hypothesis import strategies as st

from stele.security.client_security import Store
from stele.security.pem import PrivateKey, StoreError, blocks_of
from stele.security.stores import check_dates, fingerprint, read_key_store, read_trust_store

AUTHORITY = trustme.CA()
LEAF = AUTHORITY.issue_cert("broker-1", key_type=trustme.KeyType.ECDSA)
OTHER = AUTHORITY.issue_cert("broker-2", key_type=trustme.KeyType.ECDSA)
KEY_PEM = LEAF.private_key_pem.bytes().decode()
CHAIN_PEM = "".join(each.bytes().decode() for each in LEAF.cert_chain_pems)
CA_PEM = AUTHORITY.cert_pem.bytes().decode()
CA = x509.load_pem_x509_certificate(CA_PEM.encode())
CERTIFICATE = x509.load_pem_x509_certificate(CHAIN_PEM.encode())


def private_key() -> PrivateKey:
    key = load_pem_private_key(KEY_PEM.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def key_text(form: PrivateFormat, password: bytes | None = None) -> str:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return private_key().private_bytes(Encoding.PEM, form, encryption).decode()


def in_file(folder: Path, content: str | bytes, name: str = "store") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, b"secret"])
def test_a_key_of_any_form_is_read(
    tmp_path: Path, form: PrivateFormat, password: bytes | None
) -> None:
    path = in_file(tmp_path, key_text(form, password) + CHAIN_PEM)
    store = read_key_store(Store(location=path, key_password="secret"))
    assert store.certificate == CERTIFICATE
    assert store.key.private_numbers() == private_key().private_numbers()  # type: ignore[union-attr]
    assert b"BEGIN PRIVATE KEY" in store.key_pem
    assert store.chain_pem.decode() == CHAIN_PEM


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_an_encrypted_key_without_its_password_is_refused(
    tmp_path: Path, form: PrivateFormat
) -> None:
    path = in_file(tmp_path, CHAIN_PEM + key_text(form, b"secret"))
    with pytest.raises(StoreError, match=r"store: block 2 \(.*\) is encrypted: set ssl_key_passw"):
        read_key_store(Store(location=path))
    with pytest.raises(StoreError, match=r"block 2 .* cannot be read: .*is ssl_key_password right"):
        read_key_store(Store(location=path, key_password="wrong"))


def test_rsa_and_ed25519_keys_are_taken_and_dsa_is_not() -> None:
    for key in (rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()):
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        with pytest.raises(StoreError, match="does not fit"):
            read_key_store(Store(key=text, certificates=CHAIN_PEM))
    old = dsa.generate_private_key(1024)
    text = old.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with pytest.raises(StoreError, match="key of type DSA; TLS takes RSA, EC and Ed25519"):
        read_key_store(Store(key=text, certificates=CHAIN_PEM))


@pytest.mark.parametrize("separator", [" ", "\\n", "\r\n", "\n\n"])
def test_inline_text_may_have_lost_its_lines(separator: str) -> None:
    def joined(text: str) -> str:
        return separator.join(text.split("\n"))

    store = read_key_store(Store(key=joined(KEY_PEM), certificates=joined(CHAIN_PEM)))
    assert store.certificate == CERTIFICATE
    assert store.source == "ssl_keystore_certificate_chain"
    assert read_trust_store(Store(certificates=joined(CA_PEM))).certificates == (CA,)


def test_a_key_that_does_not_fit_is_refused_with_both_fingerprints(tmp_path: Path) -> None:
    other = "".join(each.bytes().decode() for each in OTHER.cert_chain_pems)
    with pytest.raises(StoreError) as caught:
        read_key_store(Store(location=in_file(tmp_path, KEY_PEM + other)))
    words = str(caught.value)
    assert "the private key does not fit the certificate of" in words
    found = [word.strip(",;") for word in words.split() if word.count(":") == 31]
    assert len(found) == 2 == len(set(found))


def test_a_chain_in_the_wrong_order_is_refused_with_the_right_one(tmp_path: Path) -> None:
    path = in_file(tmp_path, KEY_PEM + CA_PEM + CHAIN_PEM)
    with pytest.raises(StoreError, match="it fits certificate 2: the certificate of the key must"):
        read_key_store(Store(location=path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CHAIN_PEM, "has 0 private keys; a key store in PEM form is one file"),
        (KEY_PEM * 2 + CHAIN_PEM, "has 2 private keys"),
        (KEY_PEM, "has no certificate for the private key"),
        (CHAIN_PEM + KEY_PEM[:-20], r"block 2 has no matching -----END line; is the file cut off"),
        ("nothing", "is neither PEM nor PKCS12"),
        (CHAIN_PEM.replace("MII", "M!I", 1) + KEY_PEM, r"block 1 \(CERTIFICATE\) is no base64"),
        (CHAIN_PEM.replace("MII", "AAA", 1) + KEY_PEM, r"block 1 \(CERTIFICATE\) is no certif"),
        (CHAIN_PEM + KEY_PEM.replace("M", "A", 1), r"block 2 \(EC PRIVATE KEY\) cannot be read"),
        (b"0\x01\x02", r"cannot be read as PKCS12: .*; ssl_keystore_password is not set"),
    ],
)
def test_a_broken_file_is_refused_with_block_and_reason(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    path = in_file(tmp_path, content)
    with pytest.raises(StoreError, match=f"^{path}.*{reason}"):
        read_key_store(Store(location=path))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match=r"^ssl_keystore_location=/no/file: No such"):
        read_key_store(Store(location="/no/file"))
    with pytest.raises(StoreError, match=r"^listener\.ssl\.truststore\.location=/no/file: No such"):
        read_trust_store(Store(location="/no/file"), lambda setting: f"listener.{setting}")


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (Store(key=KEY_PEM), "ssl_keystore_key is set without ssl_keystore_certificate_chain"),
        (Store(certificates="x"), "ssl_keystore_certificate_chain is set without ssl_keystore_key"),
        (
            Store(key=KEY_PEM, certificates=CHAIN_PEM, location="/x"),
            "ssl_keystore_location and ssl_keystore_key are both set",
        ),
        (Store(key=KEY_PEM, certificates=CHAIN_PEM, type="JKS"), "set ssl_keystore_type=PEM"),
        (
            Store(key=KEY_PEM, certificates=CHAIN_PEM, password="x"),
            "remove ssl_keystore_password",
        ),
        (Store(key=CHAIN_PEM, certificates=CHAIN_PEM), "ssl_keystore_key has 0 private keys"),
    ],
)
def test_contradictions_of_inline_settings_are_refused(store: Store, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        read_key_store(store)


def test_a_trust_store_has_all_certificates_of_its_file(tmp_path: Path) -> None:
    second = trustme.CA().cert_pem.bytes().decode()
    path = in_file(tmp_path, "# ours: M\u00fcnchen\n" + CA_PEM + "# theirs\n" + second)
    trusted = read_trust_store(Store(location=path, type="PEM"))
    assert trusted.certificates[0] == CA
    assert len(trusted.certificates) == 2
    assert trusted.pem.decode() == CA_PEM + second


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (Store(certificates=KEY_PEM), "ssl_truststore_certificates has no certificate in PEM"),
        (Store(certificates=CA_PEM, location="/x"), "are both set"),
        (Store(certificates=CA_PEM, type="PKCS12"), "set ssl_truststore_type=PEM"),
        (Store(certificates=CA_PEM, password="x"), "remove ssl_truststore_password"),
    ],
)
def test_contradictions_of_an_inline_trust_store_are_refused(store: Store, reason: str) -> None:
    with pytest.raises(StoreError, match=reason):
        read_trust_store(store)


def as_pkcs12(
    password: bytes | None = b"secret", *, chain: list[x509.Certificate] | None = None
) -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return pkcs12.serialize_key_and_certificates(
        b"own", private_key(), CERTIFICATE, chain or [CA], encryption
    )


@pytest.mark.parametrize("kind", [None, "PKCS12", "JKS", "pkcs12"])
def test_pkcs12_is_known_by_its_content(tmp_path: Path, kind: str | None) -> None:
    path = in_file(tmp_path, as_pkcs12())
    store = read_key_store(Store(location=path, type=kind, password="secret"))
    assert store.chain == (CERTIFICATE, CA)
    assert (
        read_key_store(Store(location=in_file(tmp_path, as_pkcs12(None)))).chain[0] == CERTIFICATE
    )


def test_the_chain_of_pkcs12_is_put_in_order(tmp_path: Path) -> None:
    middle = AUTHORITY.create_child_ca()
    leaf = middle.issue_cert("a", key_type=trustme.KeyType.ECDSA)
    found = [x509.load_pem_x509_certificate(each.bytes()) for each in leaf.cert_chain_pems]
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    stranger = x509.load_pem_x509_certificate(trustme.CA().cert_pem.bytes())
    data = pkcs12.serialize_key_and_certificates(
        b"own", key, found[0], [stranger, CA, *found[1:]], BestAvailableEncryption(b"secret")
    )
    store = read_key_store(Store(location=in_file(tmp_path, data), password="secret"))
    assert store.chain == (*found, CA)


def test_the_type_that_is_set_must_agree_with_the_content(tmp_path: Path) -> None:
    path = in_file(tmp_path, KEY_PEM + CHAIN_PEM)
    with pytest.raises(StoreError, match=f"{path} is PEM: set ssl_keystore_type=PEM"):
        read_key_store(Store(location=path, type="PKCS12"))
    assert read_key_store(Store(location=path, type="JKS")).certificate == CERTIFICATE
    packed = in_file(tmp_path, as_pkcs12(), "packed")
    with pytest.raises(StoreError, match=f"{packed} is PKCS12: set ssl_keystore_type=PKCS12"):
        read_key_store(Store(location=packed, type="PEM"))
    with pytest.raises(StoreError, match="ssl_keystore_type=BKS: it must be PEM or PKCS12"):
        read_key_store(Store(location=path, type="BKS"))


def test_a_wrong_password_of_pkcs12_is_named(tmp_path: Path) -> None:
    path = in_file(tmp_path, as_pkcs12())
    with pytest.raises(StoreError, match=r"cannot be read as PKCS12.*is ssl_keystore_password ri"):
        read_key_store(Store(location=path, password="wrong"))
    with pytest.raises(StoreError, match="ssl_truststore_password is not set"):
        read_trust_store(Store(location=path))


def test_pkcs12_may_be_a_trust_store_and_then_it_has_no_key(tmp_path: Path) -> None:
    data = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(CA, b"ca")], BestAvailableEncryption(b"secret")
    )
    path = in_file(tmp_path, data)
    assert read_trust_store(Store(location=path, password="secret")).certificates == (CA,)
    with pytest.raises(StoreError, match="no private key with a certificate; is it a trust store"):
        read_key_store(Store(location=path, password="secret"))
    keys = in_file(tmp_path, as_pkcs12(), "keys")
    with pytest.raises(StoreError, match="no trusted certificates; is it a key store"):
        read_trust_store(Store(location=keys, password="secret"))


@pytest.mark.parametrize(("magic", "name"), [("feedfeed", "JKS"), ("cececece", "JCEKS")])
def test_javas_own_formats_are_refused_with_the_command_that_converts(
    tmp_path: Path, magic: str, name: str
) -> None:
    path = in_file(tmp_path, bytes.fromhex(magic) + b"rest", "my store.jks")
    with pytest.raises(StoreError) as caught:
        read_key_store(Store(location=path, type="JKS"))
    words = str(caught.value)
    converted = path.removesuffix(".jks") + ".p12"
    assert f"keytool -importkeystore -srckeystore '{path}' -srcstoretype {name}" in words
    assert f"-destkeystore '{converted}' -deststoretype PKCS12" in words
    assert f"then set ssl_keystore_location={converted}" in words


def test_pem_has_no_store_password(tmp_path: Path) -> None:
    path = in_file(tmp_path, KEY_PEM + CHAIN_PEM)
    with pytest.raises(StoreError, match="no store password; set ssl_key_password for an encr"):
        read_key_store(Store(location=path, password="x"))
    with pytest.raises(StoreError, match="no store password: remove ssl_truststore_password"):
        read_trust_store(Store(location=path, password="x"))


def test_openssls_own_form_of_a_trusted_certificate_is_read(tmp_path: Path) -> None:
    plain = in_file(tmp_path, CA_PEM)
    made = subprocess.run(
        ["openssl", "x509", "-in", plain, "-trustout"], capture_output=True, text=True, check=True
    )
    renamed = CA_PEM.replace("CERTIFICATE", "X509 CERTIFICATE")
    assert read_trust_store(Store(certificates=renamed)).certificates == (CA,)
    assert "TRUSTED CERTIFICATE" in made.stdout


def test_a_certificate_that_is_not_valid_is_refused_with_its_date() -> None:
    day = datetime.timedelta(days=1)
    begins, ends = CERTIFICATE.not_valid_before_utc, CERTIFICATE.not_valid_after_utc
    check_dates(CERTIFICATE, begins + day, "file")
    with pytest.raises(StoreError, match=f"file: the certificate of .* expired on {ends:%Y-%m-%d}"):
        check_dates(CERTIFICATE, ends + day, "file")
    with pytest.raises(StoreError, match=f"valid only from {begins:%Y-%m-%d}"):
        check_dates(CERTIFICATE, begins - day, "file")


def test_a_fingerprint_agrees_with_openssl(tmp_path: Path) -> None:
    path = in_file(tmp_path, CA_PEM)
    said = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-fingerprint", "-sha256"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip().rpartition("=")[2] == fingerprint(CA)


@given(st.lists(st.sampled_from([KEY_PEM, CHAIN_PEM, CA_PEM, "text\n", "-----\n"]), max_size=6))
def test_every_block_is_found_whatever_stands_between(parts: list[str]) -> None:
    expected = [part for part in parts if "BEGIN" in part]
    found = blocks_of("".join(parts), "text")
    assert [block.pem.decode() for block in found] == expected
    assert [block.number for block in found] == list(range(1, len(expected) + 1))


@given(st.text())
def test_any_text_has_blocks_or_is_refused(text: str) -> None:
    try:
        blocks_of("-----BEGIN CERTIFICATE-----" + text, "text")
    except StoreError:
        pass
