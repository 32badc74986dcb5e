"""``stele format`` and ``stele server``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.output import CommandError, note, print_json

if TYPE_CHECKING:
    from runtime.config import NodeConfig
    from stele.world import Disk

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated."),
]


def format_command(
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's server.properties.")],
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", help="The cluster's id; none given: a new one.")
    ] = "",
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Leave formatted directories as they are.")
    ] = False,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Prepare a node's directories: write whose they are. Every node needs the same cluster id."""
    from node.format import directories_of, format_directory, random_cluster_id
    from runtime.real.world import RealWorld

    node = _load(config, settings)
    world = RealWorld()
    try:
        directories = directories_of(node)
        chosen = cluster_id or node.cluster_id or _present_id(world.world.disk, directories)
        chosen = chosen or random_cluster_id(world.world.rng)
        fresh = format_directory(
            world.world.disk,
            directories,
            chosen,
            node.node_id,
            world.world.rng,
            ignore_formatted=ignore_formatted,
        )
    finally:
        world.close()
    if as_json:
        print_json({"cluster_id": chosen, "node_id": node.node_id, "formatted": fresh})
        return
    for path in directories:
        state = "formatted" if path in fresh else "left as it was"
        print(f"{path}: {state} (cluster {chosen}, node {node.node_id})")


def _present_id(disk: Disk, directories: list[str]) -> str:
    """The cluster id of a directory that is formatted already; "" where none is."""
    from storage.checkpoints import META_PROPERTIES_FILE, read_meta_properties

    for directory in directories:
        properties = read_meta_properties(disk, f"{directory}/{META_PROPERTIES_FILE}")
        if properties is not None:
            return properties.cluster_id
    return ""


def server(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A server.properties file.")],
    settings: Settings = None,
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING…")] = "INFO",
    exit_with_parent: Annotated[
        int | None,
        typer.Option("--exit-with-parent", metavar="PID", help="Die when this parent does."),
    ] = None,
) -> int:
    """Run a node until SIGTERM or Ctrl-C. Settings: file, then STELE_* variables, then --set."""
    import logging

    if exit_with_parent is not None:
        _die_with_parent(exit_with_parent)
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise CommandError(f"--log-level {log_level}: use DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    node = _load(config, settings)
    from node.run import run_node

    return run_node(node)


def _load(path: Path, settings: list[str] | None) -> NodeConfig:
    from runtime.config import load

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
