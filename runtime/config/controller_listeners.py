"""A controller's listeners: the ports that it binds, and where the other nodes find it.

Several listeners let a cluster move from one protection to another without a stop. Each node uses
the first of its own controller.listener.names that a controller has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from runtime.config.addresses import NamedAddress, parse_address, parse_listener
from stele.addresses import Address

WILDCARDS: Final = ("0.0.0.0", "::", "*")

_NAMES: Final = "controller.listener.names"
_BOUND: Final = "controller.listener"
_ADVERTISED: Final = "controller.advertised.listener"
_VOTERS: Final = "controller.quorum.voters"
_HOME: Final = "127.0.0.1"


class ControllerListeners(NamedTuple):
    """Both hold the same names, in the order of controller.listener.names."""

    bound: tuple[NamedAddress, ...]
    advertised: tuple[NamedAddress, ...]


class ControllerListenersReader:
    """Reads the listeners of one controller, and collects the faults."""

    def __init__(self, faults: list[str], names: Sequence[str]) -> None:
        self._faults = faults
        self._names = names

    def read(
        self, bound: Sequence[str], advertised: Sequence[str], entry: Address | None
    ) -> ControllerListeners:
        """``entry``: the controller's own one in controller.quorum.voters."""
        if not bound:
            self._faults.append(f"{_BOUND} must name an address: host:port")
        by_name = self._by_name(_BOUND, bound)
        for name in self._names:
            if name not in by_name and by_name:
                self._faults.append(
                    f"{_BOUND} lacks {name}, which {_NAMES} names: give each listener its "
                    f"address, for example {name}://{_HOME}:9094"
                )
        ports = tuple(by_name[name] for name in self._names if name in by_name)
        given = self._by_name(_ADVERTISED, advertised)
        found = tuple(self._advertised(each, given.get(each.name), entry) for each in ports)
        if len(found) > 1 and entry is not None and found[0].port != entry.port:
            self._faults.append(
                f"{_VOTERS} has this controller at {entry}, and its listener {found[0].name} is at "
                f"{found[0].address}: nodes connect to the addresses in {_VOTERS} by the first of "
                f"{_NAMES}, so name the address of {found[0].name} there"
            )
        return ControllerListeners(ports, found)

    def _by_name(self, key: str, items: Sequence[str]) -> dict[str, NamedAddress]:
        alone = parse_address(items[0]) if len(items) == 1 else None
        if alone is not None:
            return {self._names[0]: NamedAddress(self._names[0], alone.host or _HOME, alone.port)}
        found: dict[str, NamedAddress] = {}
        for item in items:
            listener = parse_listener(item)
            if listener is None:
                form = "it must be host:port, or NAME://host:port for each of several listeners"
                self._faults.append(f"{key}={item}: {form}")
            elif listener.name not in self._names:
                self._faults.append(f"{key} names {listener.name}, which {_NAMES} does not")
            elif listener.name in found:
                self._faults.append(f"{key} names {listener.name} twice")
            else:
                found[listener.name] = listener._replace(host=listener.host or _HOME)
        return found

    def _advertised(
        self, bound: NamedAddress, given: NamedAddress | None, entry: Address | None
    ) -> NamedAddress:
        """Where other nodes find a listener. The entry among the first voters is its address. Of
        several listeners, they are on the entry's host."""
        found = given or bound
        if given is None and entry is not None:
            port = entry.port if len(self._names) == 1 else bound.port
            found = NamedAddress(bound.name, entry.host, port)
        if found.host in WILDCARDS or (given is not None and not given.port):
            place = f"<host name or address>:{found.port or bound.port}"
            if len(self._names) > 1:
                place = f"{bound.name}://{place}"
            self._faults.append(
                f"the controller would be found at {found.address}, where no node can connect: "
                f"set {_ADVERTISED}={place}"
            )
        return found
