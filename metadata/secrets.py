"""Records of the metadata log for readers that may know everything but passwords and keys."""

from __future__ import annotations

from typing import Final

from metadata.config_key import Type
from metadata.config_keys import NODE_KEYS
from metadata.records import decode, encode
from metadata.security_settings import LISTENER_KEYS
from stele.wire.v1 import metadata_pb2 as pb

HIDDEN: Final = "[hidden]"
"""In the place of a value, as in Kafka's tools."""

# The first bytes of a record that may have a secret: protobuf's tag of its only field.
_TAGS: Final = tuple(
    encode(pb.MetadataRecord(**{kind: {}}))[:-1]
    for kind in ("user_scram_credential", "scram_secret", "request_outcome", "config")
)

_SECRET_KEYS: Final = tuple(
    key.name for key in (*NODE_KEYS.values(), *LISTENER_KEYS) if key.type is Type.PASSWORD
)


def without_secrets(value: bytes) -> bytes:
    """An encoded record. It still fits the image that it is replayed on. A kind of record that this
    version does not know stays as it is. Raises MetadataError.

    The digest of a request is hidden, too: by the digest of a change of passwords, guesses could be
    checked.
    """
    if not value.startswith(_TAGS):
        return value
    record = decode(value)
    kind = record.WhichOneof("record")
    if kind == "user_scram_credential":
        credential = record.user_scram_credential
        credential.salt = credential.stored_key = credential.server_key = b""
    elif kind == "scram_secret":
        record.scram_secret.secret = b""
    elif kind == "request_outcome":
        record.request_outcome.digest = b""
    elif kind == "config" and _is_secret(record.config):
        record.config.value = HIDDEN
    else:
        return value
    return encode(record)


def _is_secret(config: pb.ConfigRecord) -> bool:
    """Also where the key has the prefix of a listener."""
    return config.HasField("value") and config.name.endswith(_SECRET_KEYS)
