"""``--command-config FILE``: how every command that asks a cluster says who it is.

The option is added to each command that has ``--bootstrap-server``, so that none lacks it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stele.security.options import SecurityOptions

OPTION: Final = "--command-config"
VARIABLE: Final = "STELE_COMMAND_CONFIG"  # as of stele.security.properties

_chosen: list[str] = []  # the path of the file, if one was given


def choose(path: str | None) -> None:
    """Take the file of the command that runs now."""
    _chosen[:] = [] if path is None else [path]


def command_security() -> SecurityOptions:
    """The options about security of each client of the command. Raises ConfigError."""
    from stele.security.properties import security_options

    return security_options(_chosen[0]) if _chosen else {}


def add_option(command: Any) -> None:
    """Give a command the option, if it asks a cluster and does not have it yet."""
    options = {name: each for each in command.params for name in each.opts}
    if "--bootstrap-server" not in options or OPTION in options:
        return
    # A copy, because the constructor's arguments differ between typer's versions.
    added = copy.copy(options["--bootstrap-server"])
    added.name, added.opts, added.secondary_opts = "command_config", [OPTION], []
    added.default, added.show_default, added.metavar = None, False, "FILE"
    added.envvar, added.expose_value = VARIABLE, False
    added.callback = lambda _context, _parameter, path: choose(path)
    added.help = "A file with properties of the client: security.protocol, ssl.*, sasl.*."
    command.params.append(added)
