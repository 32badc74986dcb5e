"""The first users of a cluster (KIP-900): ``stele format --add-scram``.

Their credentials wait in a file of each controller. The first active controller writes them into
the metadata log, with the first records of the cluster. Later the file has no effect.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.records import decode, encode
from metadata.scram_credentials import ScramUser, credential_record
from runtime.config.node import ConfigError, NodeConfig
from runtime.quorum import snapshots
from runtime.quorum.snapshots import BOOTSTRAP
from stele.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    salted_password,
)
from stele.wire.v1 import metadata_pb2 as pb
from stele.world import Rng
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC
from world.disk import Disk

OPTION: Final = "--add-scram"
_FILE: Final = "bootstrap.checkpoint"

_FORM: Final = re.compile(r"\s*(?P<mechanism>[^=\[]*)=\[(?P<settings>.*)\]\s*", re.DOTALL)
_SETTING: Final = re.compile(
    r'\s*(?P<name>[A-Za-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^,]*))\s*(?:,|$)'
)
_NAMES: Final = ("name", "password", "saltedpassword", "salt", "iterations")
_EXAMPLE: Final = f"{OPTION} 'SCRAM-SHA-512=[name=admin,password=secret]'"


@dataclass(frozen=True, slots=True)
class FirstUsers:
    """The credentials, as records of the metadata log, that one controller is formatted with."""

    metadata_directory: str
    records: tuple[pb.MetadataRecord, ...]

    @classmethod
    def of(cls, config: NodeConfig, arguments: Sequence[str], rng: Rng) -> FirstUsers:
        """Users by the values of the option, in the syntax of kafka-storage. Raises ConfigError,
        which shows no password."""
        found: dict[ScramUser, pb.MetadataRecord] = {}
        for text in arguments:
            user, credential = _credential(text, rng)
            if user in found:
                mechanism = text.partition("=")[0].strip()
                raise ConfigError(f"{OPTION}: user {user.name!r} has {mechanism} twice")
            found[user] = credential_record(user, credential)
        return cls(config.metadata_log_dir, tuple(found.values()))

    def write(self, disk: Disk, cluster_id: str) -> None:
        """Into the metadata directory, durably."""
        values = [encode(each) for each in self.records]
        content = b"".join(snapshots.encode(BOOTSTRAP, cluster_id, 0, values))
        path = _path(self.metadata_directory)
        disk.make_directory(path.rpartition("/")[0])
        disk.replace_file_now(path, content)
        disk.sync_now(self.metadata_directory)


def read_first_users(
    disk: Disk, metadata_directory: str, cluster_id: str
) -> tuple[pb.MetadataRecord, ...]:
    """The records that ``FirstUsers.write`` wrote; none: it did not. Raises SnapshotError,
    OSError."""
    path = _path(metadata_directory)
    if not disk.exists(path):
        return ()
    found = snapshots.read(disk.read_file(path), BOOTSTRAP, cluster_id)
    return tuple(map(decode, found.records))


def _path(metadata_directory: str) -> str:
    return f"{metadata_directory}/{METADATA_TOPIC}-{METADATA_PARTITION}/{_FILE}"


def _credential(text: str, rng: Rng) -> tuple[ScramUser, ScramCredential]:
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError(
            f"{OPTION}: it is not of the form MECHANISM=[name=NAME,password=PASSWORD]: {_EXAMPLE}"
        )
    mechanism = MECHANISMS.get(form["mechanism"].strip())
    if mechanism is None:
        known = " and ".join(sorted(MECHANISMS))
        raise ConfigError(f"{OPTION}: there is no mechanism {form['mechanism']!r}: {known}")
    settings = _settings(form["settings"])
    name = settings.get("name", "")
    if not name:
        raise ConfigError(f"{OPTION}: it names no user: {_EXAMPLE}")
    iterations = _iterations(settings.get("iterations"), name)
    salt = _decoded(settings, "salt", name) or rng.randbytes(SALT_BYTES)
    salted = _salted(mechanism, settings, name, salt, iterations)
    credential = ScramCredential.of_salted(mechanism, salted, salt, iterations)
    return ScramUser(name, mechanism.number), credential


def _settings(text: str) -> dict[str, str]:
    """A value in double quotes may have commas."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        setting = _SETTING.match(text, position)
        if setting is None:
            after = f"after {next(reversed(found))}" if found else "at the beginning"
            raise ConfigError(f"{OPTION}: {after}, name=value must stand: {_EXAMPLE}")
        name, quoted = setting["name"], setting["quoted"]
        if name not in _NAMES:
            raise ConfigError(
                f"{OPTION}: it has no setting {name!r}; there are {', '.join(_NAMES)}"
            )
        if name in found:
            raise ConfigError(f"{OPTION}: {name} stands twice")
        found[name] = setting["bare"].strip() if quoted is None else quoted
        position = setting.end()
    return found


def _iterations(text: str | None, user: str) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ConfigError(
            f"{OPTION}: iterations={text} of user {user!r} must be {MIN_ITERATIONS} to "
            f"{MAX_ITERATIONS}"
        )
    return int(text)


def _salted(
    mechanism: ScramMechanism, settings: dict[str, str], user: str, salt: bytes, iterations: int
) -> bytes:
    given = [name for name in ("password", "saltedpassword") if settings.get(name)]
    if len(given) != 1:
        raise ConfigError(
            f"{OPTION}: give user {user!r} either password or saltedpassword, and not "
            + ("both" if given else "an empty one")
        )
    if given == ["password"]:
        return salted_password(mechanism, settings["password"], salt, iterations)
    if not settings.get("salt"):
        raise ConfigError(f"{OPTION}: saltedpassword of user {user!r} needs the salt, too")
    salted = _decoded(settings, "saltedpassword", user)
    if len(salted) != mechanism.hash_bytes:
        raise ConfigError(
            f"{OPTION}: saltedpassword of user {user!r} has {len(salted)} bytes: those of "
            f"{mechanism.name} have {mechanism.hash_bytes}"
        )
    return salted


def _decoded(settings: dict[str, str], name: str, user: str) -> bytes:
    try:
        return base64.b64decode(settings.get(name, ""), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{OPTION}: {name} of user {user!r} is no base64") from error
