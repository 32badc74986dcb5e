"""Why an address cannot be listened on."""

from __future__ import annotations

import errno

from stele.addresses import Address


def bind_error(address: Address, error: Exception) -> OSError:
    """In one line; gRPC gives no reason."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (None, errno.EADDRINUSE):
        return OSError(
            errno.EADDRINUSE,
            f"cannot listen on {address}: the port is in use by another process, "
            "or the address is not this machine's",
        )
    return OSError(number, f"cannot listen on {address}: {error.args[-1]}")
