"""The file of client properties that ``stele users add --properties`` writes for a new user."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cli.client_properties import command_security
from cli.output import CommandError, UsageError
from stele.properties import format_properties
from stele.security.properties import as_properties, login_properties

_PASSWORD_BYTES: Final = 24
_OF_THE_ADMINISTRATOR: Final = ("ssl.keystore.", "ssl.key.")
_LOGIN_PROTOCOLS: Final = {
    "SSL": "SASL_SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
}


def made_password() -> str:
    """One that nobody has to remember, because it stands in a file."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def properties_of_user(user: str, password: str, mechanism: str) -> dict[str, str]:
    """How the user comes in: what the command's own properties believe, and the user's login.

    Raises UsageError if the command itself has no properties, because then nobody knows which
    authority the brokers' certificates are of.
    """
    own = as_properties(command_security())
    protocol = _LOGIN_PROTOCOLS.get(own.get("security.protocol", "PLAINTEXT"))
    if protocol is None:
        raise UsageError(
            "--properties takes the protocol and the trust store of the file that "
            "--command-config names: give one whose security.protocol is SASL_SSL or SSL"
        )
    believed = {
        name: str(Path(value).absolute()) if name == "ssl.truststore.location" else value
        for name, value in own.items()
        if name.startswith("ssl.") and not name.startswith(_OF_THE_ADMINISTRATOR)
    }
    login = login_properties(user, password, mechanism)
    return {"security.protocol": protocol, **login, **believed}


@contextmanager
def new_file(path: Path, properties: Mapping[str, str]) -> Iterator[None]:
    """A file that only its owner may read, there before what depends on it is done. It is removed
    if that fails: otherwise the only copy of a password would be lost."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists: name another file, or remove it") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(format_properties(properties))
        yield
    except BaseException:
        path.unlink()
        raise
