"""The error of a listener whose address cannot be bound."""

from __future__ import annotations

from runtime.config.addresses import NamedAddress
from runtime.config.node import ConfigError
from stele.addresses import address_text


def bind_error(key: str, address: NamedAddress, error: OSError) -> ConfigError:
    """One line that says which key to change, and why."""
    reason = error.strerror or str(error)
    return ConfigError(
        f"{key}={address.name}://{address_text(address.host, address.port)}: {reason}"
    )
