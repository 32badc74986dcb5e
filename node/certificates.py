"""A directory with an authority and the certificates that it has issued.

``ca.pem`` has the certificates that everybody believes: the authority's, and after a change of the
authority also the one before. ``ca.key`` signs and stays here. ``node-<id>.pem`` and
``user-<name>.pem`` are keystores. Each file is replaced as a whole, so that a node that watches its
keystore never reads half of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from security.authority import (
    AUTHORITY_DAYS,
    Authority,
    AuthorityError,
    CertificateFacts,
    Keystore,
    Subject,
    facts_of,
    subject_of,
)
from stele.errors import SteleError

CERTIFICATES: Final = "ca.pem"
KEY: Final = "ca.key"

_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----\n"


class CertificateError(SteleError):
    """A file of certificates cannot be read or made; ``str()`` says which and why."""


class CertificateDirectory:
    """The files of one authority."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def truststore(self) -> Path:
        return self.path / CERTIFICATES

    def keystore(self, subject: Subject) -> Path:
        """Where the subject's key and certificate are, or will be. Raises CertificateError."""
        kind = "user-" if subject.node_id is None else ""
        name = f"{kind}{subject.name}.pem"
        if "/" in name or name.startswith("."):
            raise CertificateError(f"{subject.name!r} cannot be the name of a file")
        return self.path / name

    def exists(self) -> bool:
        return (self.path / KEY).exists()

    def authority(self) -> Authority:
        """The present authority. Raises CertificateError."""
        if not self.exists():
            raise CertificateError(
                f"{self.path} has no authority ({KEY}): make one with stele certs create"
            )
        first = certificates_in(_read(self.truststore))[:1]
        return Authority(Keystore("".join(first), _read(self.path / KEY)))

    def make_authority(self, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
        """A new one. An earlier one is still believed, until ``forget_earlier``."""
        earlier = certificates_in(_read(self.truststore)) if self.truststore.exists() else []
        made = Authority.make(now, days)
        self.path.mkdir(parents=True, exist_ok=True)
        # The certificate first: a key without it would sign what nobody believes.
        _write(self.truststore, "".join([made.certificate, *earlier]), _PUBLIC)
        _write(self.path / KEY, made.keystore.key, _PRIVATE)
        return made

    def forget_earlier(self) -> int:
        """Believe the present authority alone. Returns the number of those forgotten. Raises
        CertificateError while a certificate here was issued by an earlier one."""
        found = certificates_in(_read(self.truststore))
        present = facts_of(found[0])[0].subject
        older = [
            file.name
            for file in self.files()
            if file != self.truststore and certificates_of(file)[0].issuer != present
        ]
        if older:
            raise CertificateError(
                f"{', '.join(older)}: issued by an authority that would be forgotten, so nobody "
                "would believe them: stele certs renew first"
            )
        _write(self.truststore, "".join(found[:1]), _PUBLIC)
        return len(found) - 1

    def issue(self, subject: Subject, now: datetime, days: int) -> Path:
        """Write a new keystore for the subject. Raises CertificateError."""
        path = self.keystore(subject)
        try:
            issued = self.authority().issue(subject, now, days)
        except AuthorityError as error:
            raise CertificateError(str(error)) from error
        _write(path, issued.text, _PRIVATE)
        return path

    def subjects(self) -> Iterator[Subject]:
        """The subjects with a keystore here, by file name."""
        for file in sorted(self.path.glob("*.pem")):
            if file.name != CERTIFICATES:
                try:
                    yield subject_of(_read(file))
                except AuthorityError as error:
                    raise CertificateError(f"{file}: {error}") from error

    def files(self) -> list[Path]:
        """All that have certificates."""
        return [self.truststore, *sorted(set(self.path.glob("*.pem")) - {self.truststore})]


def certificates_in(text: str) -> list[str]:
    """Each certificate of a PEM text by itself."""
    return [_BEGIN + part.partition(_END)[0] + _END for part in text.split(_BEGIN)[1:]]


def certificates_of(file: Path) -> list[CertificateFacts]:
    """What the certificates of a file say. Raises CertificateError if there are none."""
    try:
        return facts_of(_read(file))
    except AuthorityError as error:
        raise CertificateError(f"{file}: {error}") from error


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError as error:
        raise CertificateError(f"{file}: {error.strerror or error}") from error
    except ValueError:
        raise CertificateError(f"{file} is no PEM text") from None


def _write(file: Path, text: str, mode: int) -> None:
    """Replace the file as a whole. A key is never readable by others, not even for a moment."""
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
