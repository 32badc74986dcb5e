"""``--command-config FILE`` and ``--profile NAME``: which cluster a command asks, and as whom.

The options are added to each command that asks a cluster, so that none lacks them.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli import profiles
from cli.output import UsageError

if TYPE_CHECKING:
    from stele.security.options import SecurityOptions

OPTION: Final = "--command-config"
VARIABLE: Final = "STELE_COMMAND_CONFIG"  # as of stele.security.properties
_SERVERS: Final = "--bootstrap-server"
_SERVERS_VARIABLE: Final = "STELE_BOOTSTRAP_SERVER"
_PROFILE: Final = "--profile"

_chosen: list[str] = []  # the path of the file, if one was given


def choose(path: str | None) -> None:
    """Take the file of the command that runs now."""
    _chosen[:] = [] if path is None else [path]


def command_security() -> SecurityOptions:
    """The options about security of each client of the command. Raises ConfigError."""
    from stele.security.properties import security_options

    return security_options(_chosen[0]) if _chosen else {}


def add_options(command: Any) -> None:
    """Give a command the options, if it asks a cluster and does not have them yet."""
    options = {name: each for each in command.params for name in each.opts}
    if _SERVERS not in options or _PROFILE in options or "--client-properties" in options:
        return
    servers = options[_SERVERS]
    if OPTION not in options:  # some commands read all properties of the file themselves
        config = _added(command, servers, OPTION, "command_config", "FILE", VARIABLE)
        config.callback = lambda _context, _parameter, path: choose(path)
        config.help = "A file with properties of the client: security.protocol, ssl.*, sasl.*."
    profile = _added(command, servers, _PROFILE, "profile", "NAME", profiles.VARIABLE)
    profile.expose_value = True
    profile.help = "A cluster by its name (stele profile list)."
    run = command.invoke

    def invoke(context: Any) -> Any:
        apply_profile(context, servers)
        return run(context)

    command.invoke = invoke


def _added(command: Any, like: Any, option: str, name: str, metavar: str, variable: str) -> Any:
    # A copy, because the constructor's arguments differ between typer's versions.
    added = copy.copy(like)
    added.name, added.opts, added.secondary_opts = name, [option], []
    added.default, added.show_default, added.metavar = None, False, metavar
    added.envvar, added.expose_value = variable, False
    command.params.append(added)
    return added


def apply_profile(context: Any, servers: Any) -> None:
    """Put the profile's servers and file where neither an option nor a variable says another.

    ``--profile`` wins over variables, because it was typed for this command. A profile whose
    servers do not count does not count at all: its login is never sent to other servers. Raises
    CommandError.
    """
    name = context.params.pop("profile", None)
    is_named = _source(context, "profile") == "COMMANDLINE"
    stronger = ("COMMANDLINE",) if is_named else ("COMMANDLINE", "ENVIRONMENT")
    has_servers = _source(context, servers.name) in stronger
    if is_named and has_servers:
        raise UsageError("--profile and --bootstrap-server exclude each other")
    if not is_named and (has_servers or _has_servers_elsewhere(context, servers)):
        return
    known = profiles.read_profiles()
    name = name or known.current
    if name is None:
        return
    profile = known.named(name)
    context.params[servers.name] = profile.bootstrap_servers
    config = next(each for each in context.command.params if OPTION in each.opts)
    if _source(context, config.name) in stronger:
        return
    path = profile.client_properties
    if config.expose_value:
        context.params[config.name] = None if path is None else Path(path)
    else:
        choose(path)


def _has_servers_elsewhere(context: Any, servers: Any) -> bool:
    """Some commands take the servers from a file that is given: of properties, or of a node."""
    return bool(os.environ.get(_SERVERS_VARIABLE)) or (
        servers.default is None
        and any(
            _source(context, each.name) in ("COMMANDLINE", "ENVIRONMENT")
            for each in context.command.params
            if {"--config", OPTION} & set(each.opts)
        )
    )


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)
