"""Certificates for tests: an authority, what it has signed, and settings that name them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from stele.addresses import SecurityProtocol
from stele.security.client_security import ClientSecurity, Store, TlsSettings
from world.network import ANONYMOUS, ServerTlsSettings


class Authority:
    """Signs certificates. Everything is PEM text. (trustme signs no URIs.)"""

    def __init__(self, common_name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        own = self._builder(self._name, self._key, datetime.timedelta(days=365)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._certificate = own.sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(Encoding.PEM).decode()

    def key_store(
        self,
        *names: str,
        common_name: str | None = None,
        rsa_key: bool = False,
        valid_for: datetime.timedelta = datetime.timedelta(days=90),
        valid_in: datetime.timedelta = datetime.timedelta(days=-400),
    ) -> Store:
        """A key and its certificate, inline. A name is a host, an address or a URI. ``valid_for``
        may be negative: then the certificate has expired. ``valid_in`` may be positive: then it is
        not valid yet."""
        key = (
            rsa.generate_private_key(65537, 2048)
            if rsa_key
            else ec.generate_private_key(ec.SECP256R1())
        )
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, common_name or (*names, "nobody")[0])]
        )
        builder = self._builder(subject, key, valid_for, valid_in)
        if names:
            alternative = x509.SubjectAlternativeName([_name(each) for each in names])
            builder = builder.add_extension(alternative, critical=False)
        chain = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Store(key=text, certificates=chain)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
        valid_for: datetime.timedelta,
        valid_in: datetime.timedelta = datetime.timedelta(days=-400),
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid_in)
            .not_valid_after(now + valid_for)
        )

    @property
    def trust_store(self) -> Store:
        return Store(certificates=self.pem)

    def client(self, keystore: Store | None = None) -> ClientSecurity:
        """The settings of a client that believes this authority."""
        return ClientSecurity(
            protocol=SecurityProtocol.SSL,
            tls=TlsSettings(keystore=keystore or Store(), truststore=self.trust_store),
        )

    def client_context(self, keystore: Store | None = None) -> ssl.SSLContext:
        """The same as a context of Python's."""
        context = ssl.create_default_context(cadata=self.pem)
        if keystore is not None:
            assert keystore.certificates is not None
            assert keystore.key is not None
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(keystore.certificates + keystore.key)
                file.flush()
                context.load_cert_chain(file.name)
        return context


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        kind = x509.UniformResourceIdentifier if ":" in text else x509.DNSName
        return kind(text)


AUTHORITY = Authority()
BROKER = AUTHORITY.key_store("127.0.0.1", "localhost")


def listener(
    authority: Authority = AUTHORITY,
    keystore: Store = BROKER,
    *,
    client_auth: str = "none",
    protocol: SecurityProtocol = SecurityProtocol.SSL,
    principal_of: Callable[[bytes | None], str] = lambda certificate: ANONYMOUS,
    **changes: bool,
) -> ServerTlsSettings:
    """The settings of a listener."""
    return ServerTlsSettings(
        listener="CLIENTS",
        protocol=protocol,
        tls=TlsSettings(
            keystore=keystore,
            truststore=Store() if client_auth == "none" else authority.trust_store,
        ),
        client_auth=client_auth,
        principal_of=principal_of,
        named=lambda setting: f"listener.name.clients.{setting}",
        **changes,
    )


def in_files(folder: Path, store: Store) -> Store:
    """The same store in a PEM file."""
    found = Store(location=str(folder / f"{len(list(folder.iterdir()))}.pem"))
    overwrite(found, store)
    return found


def overwrite(file: Store, store: Store) -> None:
    """Put an inline store into the file of another one."""
    Path(file.location or "").write_text((store.key or "") + (store.certificates or ""))
