"""Addresses and named listeners as text: in the configuration, in records and in requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from stele.addresses import Address, address_text

CONTROLLER: Final = "CONTROLLER"
"""The usual name of the controllers' listener. It is not spelled out where a listener is alone."""

_SEPARATOR: Final = "+"
"""Between listeners of one controller. Lists of controllers have commas, and shells split at
semicolons."""


class NamedAddress(NamedTuple):
    """A listener: its name and where it is bound, or where others find it."""

    name: str
    host: str
    port: int  # 0 when bound: any free port; 0 when advertised: the one that was bound

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"


@lru_cache(maxsize=1024)  # peers tell theirs in every answer
def parse_address(text: str) -> Address | None:
    """``host:port`` or ``[v6]:port``; None where it is neither. The host may be empty."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if any(character.isspace() or character == "/" for character in host):
        return None
    return Address(host, int(port))


def parse_listener(text: str) -> NamedAddress | None:
    """``NAME://host:port``; None where it is not that. The host may be empty."""
    name, separator, rest = text.strip().partition("://")
    address = parse_address(rest)
    if not separator or not name or address is None:
        return None
    return NamedAddress(name, address.host, address.port)


def parse_endpoint(text: str) -> tuple[NamedAddress, ...] | None:
    """Where a controller is: what ``endpoint_text`` makes. Empty if nobody knows; None if the text
    is nothing of the kind."""
    if not text:
        return ()
    alone = parse_address(text)
    if alone is not None:
        return (NamedAddress(CONTROLLER, alone.host, alone.port),)
    found = [parse_listener(item) for item in text.split(_SEPARATOR)]
    listeners = tuple(each for each in found if each is not None)
    names = {each.name for each in listeners}
    return listeners if len(names) == len(found) else None


def endpoint_text(listeners: Sequence[NamedAddress]) -> str:
    """``host:port`` of a single listener with the usual name. Otherwise ``NAME://host:port`` of
    each listener, joined by plus signs."""
    if len(listeners) == 1 and listeners[0].name == CONTROLLER:
        return str(listeners[0].address)
    return _SEPARATOR.join(map(str, listeners))


def first_address(endpoint: str) -> str:
    """The host:port of the first listener, for those who know of no others; "" for an unknown
    endpoint."""
    listeners = parse_endpoint(endpoint)
    return str(listeners[0].address) if listeners else ""


def choose_listener(listeners: Sequence[NamedAddress], names: Sequence[str]) -> NamedAddress | None:
    """The listener that a node uses which prefers the names in this order. None: no listener has
    such a name.

    A controller with a single listener is found there, whatever the listener is called: earlier
    versions of Stele recorded the usual name for each.
    """
    for name in names:
        for each in listeners:
            if each.name == name:
                return each
    return listeners[0]._replace(name=names[0]) if len(listeners) == 1 else None
