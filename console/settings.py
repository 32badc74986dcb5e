"""What a console is started with."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from console.foresight import Foresee
from stele.security.options import SecurityOptions

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """``access_key`` opens the console to a browser. ``form_token`` is in each form that changes
    something. Both are random, and last as long as the process."""

    bootstrap_servers: str
    access_key: str = field(repr=False)
    form_token: str = field(repr=False)
    port: int
    foresee: Foresee = field(repr=False)
    """What would be lost if nodes died: the rules of the active controller."""
    host_names: tuple[str, ...] = LOOPBACK_NAMES
    """The names and addresses by which browsers may call the console, without the port."""
    proxied_hosts: tuple[str, ...] = ()
    """Further Host headers, as a proxy before the console passes them on: a name with a port, or
    without one for the ports 80 and 443."""
    is_read_only: bool = False
    timeout_s: float = 5.0
    """A question to the cluster that has no answer by then becomes a page that says so."""
    reports: Path | None = None
    """The directory of drills' reports; None: the console shows none."""
    security: SecurityOptions = field(default_factory=SecurityOptions, repr=False)

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host, so the name contains the port."""
        return f"stele_console_{self.port}"

    @property
    def address(self) -> str:
        """What its person opens."""
        return f"http://{self.host_names[0]}:{self.port}/?key={self.access_key}"

    @property
    def timeout_ms(self) -> int:
        return max(1, round(self.timeout_s * 1000))

    def is_own_host(self, host_header: str) -> bool:
        """Whether a Host header is one of the console's. Browsers leave out the port 80."""
        host = host_header.lower()
        return host in self.proxied_hosts or any(
            host == f"{name}:{self.port}" or (self.port == 80 and host == name)
            for name in self.host_names
        )


def host_in_address(host: str) -> str:
    """A host as addresses and Host headers write it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def is_any_address(host: str) -> bool:
    """Whether a listener there takes connections to every address of the machine."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_unspecified
    except ValueError:
        return False
