"""A compose cluster under attack: containers killed, paused, cut off from one another.

Containers are found by compose's labels; a cut is a rule in Docker's DOCKER-USER chain, between
the static addresses of deploy/compose.yaml. Cut nodes keep their names and their published ports:
clients on the host still reach them, their peers do not, as with a broken switch. (Disconnecting a
container from its network would take its name out of DNS, which no real partition does.)
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

COMPOSE_FILE = Path(__file__).resolve().parent.parent / "deploy" / "compose.yaml"
_COMMAND_TIMEOUT_S = 600
_PROBE_TIMEOUT_S = 60


class ContainerError(Exception):
    """A container engine, compose or firewall command failed. The message says which."""


def unavailable() -> str | None:
    """Why no compose cluster can run here, or None if one can.

    The probe is the command line, which compose needs anyway. Docker's Python client would leave a
    socket open when no engine answers.
    """
    if shutil.which("docker") is None:
        return "docker is not installed"
    if error := _failure(["docker", "version", "--format", "{{.Server.Version}}"]):
        return f"no Docker engine answers: {error}"
    return "docker compose is not installed" if _failure(["docker", "compose", "version"]) else None


def cutting_unavailable() -> str | None:
    """Why containers cannot be cut off from one another here, or None if they can."""
    if os.geteuid() != 0:
        return "firewall rules need root"
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    listing = ["iptables", "-w", "-S", "DOCKER-USER"]
    return "there is no DOCKER-USER chain" if _failure(listing) else None


def _failure(command: list[str]) -> str | None:
    """What a command prints when it fails, or None if it succeeds."""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_TIMEOUT_S} s"
    return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


@dataclass(frozen=True, slots=True)
class _Cut:
    """Packets from one address to another are dropped."""

    source: str
    target: str

    def rule(self, action: str) -> list[str]:
        position = ["1"] if action == "-I" else []
        ends = ["-s", self.source, "-d", self.target]
        return ["iptables", "-w", action, "DOCKER-USER", *position, *ends, "-j", "DROP"]


class ComposeCluster:
    """The cluster of a compose file, as a context: up on entry, down with its volumes on exit."""

    def __init__(
        self,
        file: Path = COMPOSE_FILE,
        project: str = "stele-drill",
        overrides: Iterable[Path] = (),
    ) -> None:
        """``overrides``: compose files that are merged into ``file``."""
        files = [argument for each in (file, *overrides) for argument in ("--file", str(each))]
        self._command = ["docker", "compose", *files, "--project-name", project]
        self._project = project
        self._docker = docker.from_env()
        self._cuts: set[_Cut] = set()

    def __enter__(self) -> ComposeCluster:
        self.up()
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    def up(self) -> None:
        """Build the image, start everything, wait until it is healthy. Raises ContainerError, and
        then nothing is left."""
        try:
            self.compose("up", "--build", "--wait", "--quiet-pull")
        except BaseException:
            self.down()
            raise

    def compose(self, *arguments: str) -> str:
        """Run ``docker compose`` on this cluster; return what it printed. Raises ContainerError."""
        return _run([*self._command, *arguments])

    def down(self) -> None:
        """Remove containers, network, volumes and every cut. Idempotent."""
        self.heal()
        self.compose("down", "--volumes", "--timeout", "10")
        self._docker.close()

    def services(self) -> list[str]:
        return sorted(self.compose("config", "--services").split())

    def logs(self, service: str) -> str:
        return self._container(service).logs().decode(errors="replace")  # type: ignore[no-any-return]

    def container_id(self, service: str) -> str:
        return str(self._container(service).id)

    def kill(self, service: str) -> None:
        """SIGKILL."""
        self._container(service).kill()

    def start(self, service: str) -> None:
        """Start a killed or stopped container again, on its volume and its address."""
        self._container(service).start()

    def stop(self, service: str) -> None:
        """SIGTERM, and wait."""
        self._container(service).stop(timeout=30)

    def pause(self, service: str) -> None:
        self._container(service).pause()

    def unpause(self, service: str) -> None:
        self._container(service).unpause()

    def isolate(self, service: str) -> None:
        """Cut a node off from every other one, both ways; clients on the host still reach it."""
        others = [each for each in self.services() if each != service]
        self.cut([service], others)
        self.cut(others, [service])

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Drop what the sources send to the targets; the other direction stays as it is."""
        for source, target in itertools.product(sources, targets):
            cut = _Cut(self.address(source), self.address(target))
            if cut not in self._cuts:
                _run(cut.rule("-I"))
                self._cuts.add(cut)

    def heal(self) -> None:
        """Take all cuts back."""
        for cut in sorted(self._cuts, key=lambda each: (each.source, each.target)):
            _run(cut.rule("-D"))
            self._cuts.discard(cut)

    def address(self, service: str) -> str:
        """The static address of a service, from the compose file itself."""
        networks = self.configuration()["services"][service]["networks"]
        return str(next(iter(networks.values()))["ipv4_address"])

    def published_port(self, service: str, port: int) -> int:
        """Where the host finds a port of a service."""
        found = [
            each["published"]
            for each in self.configuration()["services"][service]["ports"]
            if each["target"] == port
        ]
        if len(found) != 1:
            raise ContainerError(f"{service} publishes port {port} {len(found)} times")
        return int(found[0])

    def configuration(self) -> dict[str, Any]:
        """The compose file with all that it merges."""
        loaded: dict[str, Any] = json.loads(self.compose("config", "--format", "json"))
        return loaded

    def _container(self, service: str) -> Any:
        labels = [
            f"com.docker.compose.project={self._project}",
            f"com.docker.compose.service={service}",
        ]
        found = self._docker.containers.list(all=True, filters={"label": labels})
        if len(found) != 1:
            raise ContainerError(f"{len(found)} containers of service {service}, 1 expected")
        return found[0]


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise ContainerError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-4000:]}")
    return done.stdout
