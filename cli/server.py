"""``stele server``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import CommandError, UsageError, note

if TYPE_CHECKING:
    from runtime.config.node import NodeConfig

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated."),
]


def server(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A server.properties file.")],
    settings: Settings = None,
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING…")] = "INFO",
    exit_with_parent: Annotated[
        int | None,
        typer.Option(
            "--exit-with-parent",
            metavar="PID",
            help="Process id of the parent: the node ends when the parent does.",
        ),
    ] = None,
) -> int:
    """Run a node until SIGTERM or Ctrl-C. Settings: file, then STELE_* variables, then --set."""
    import logging

    if exit_with_parent is not None:
        _die_with_parent(exit_with_parent)
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise UsageError(f"--log-level {log_level}: use DEBUG, INFO, WARNING or ERROR")
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(level=level, handlers=[handler])
    node = load_config(config, settings)
    from node.run import run_node
    from runtime.log_format import formatter

    handler.setFormatter(formatter(node.logging_format, node.node_id))
    if node.audit_log_file:
        write_audit(node.audit_log_file)

    return run_node(node)


def write_audit(path: str) -> None:
    """Denied requests and other refusals go into this file, and denials no longer into the node's
    log. Once the file is moved away, as logrotate does, a new one is begun."""
    import logging
    from logging.handlers import WatchedFileHandler

    from runtime.audit_events import audit_connections
    from runtime.log_format import AUDIT_LOGGER

    audit_connections()
    audit = logging.getLogger(AUDIT_LOGGER)
    audit.addHandler(WatchedFileHandler(path, encoding="utf-8"))
    audit.setLevel(logging.INFO)
    audit.propagate = False


def load_config(path: Path, settings: list[str] | None) -> NodeConfig:
    """The configuration of a node from its file, the environment and ``--set``."""
    from runtime.config.node import load

    try:
        properties = path.read_text("utf-8")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is no properties file: {error}") from None
    return load(properties, environment=os.environ, overrides=settings or ())


def _die_with_parent(parent: int) -> None:
    """Linux kills this process when its parent's thread ends; elsewhere the option does nothing."""
    import ctypes
    import signal

    if sys.platform != "linux":
        note("stele: --exit-with-parent works on Linux only")
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        raise CommandError(f"the parent process {parent} has ended")
