"""What the holder of a delegation token knows (KIP-48): a secret that follows from the token's id.

So every node can check a login by a token, and no record and no snapshot holds the secret of one.
"""

from __future__ import annotations

import base64
import hmac

from stele.security.scram import MECHANISMS, SALT_BYTES, ScramCredential, salted_password


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """The HMAC of a token, as in Kafka. ``secret``: delegation.token.secret.key."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def token_password(found_hmac: bytes) -> str:
    """The password of a login by a token with this HMAC; the user is the token's id."""
    return base64.b64encode(found_hmac).decode()


def token_salt(found_hmac: bytes) -> bytes:
    """The salt of such a login. It is the same on every node, so that a client with connections to
    all of them salts the password once."""
    return hmac.digest(found_hmac, b"salt", "sha256")[:SALT_BYTES]


def salted_keys(mechanism: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """The stored key and the server key of a password: the work of ``DeriveKeys``, with plain
    values, because it is done in another process."""
    found = MECHANISMS[mechanism]
    salted = salted_password(found, password, salt, iterations)
    credential = ScramCredential.of_salted(found, salted, salt, iterations)
    return credential.stored_key, credential.server_key
