"""The console of a cluster that ``stele dev`` runs. The cluster's owner serves it."""

from __future__ import annotations

import asyncio
import socket

from chaos.process_cluster import ProcessCluster
from cli.console import fresh_settings
from cli.output import CommandError
from console.app import build
from console.clients import ConsoleClients
from console.serving import ConsoleServer, ListenError, listen
from stele.security.options import SecurityOptions

_HOST = "127.0.0.1"


class DevConsole:
    def __init__(self, port: int) -> None:
        """``port`` 0: any free one."""
        self._port = port
        self._listening: socket.socket | None = None
        self._server: ConsoleServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address: str | None = None

    @property
    def address(self) -> str | None:
        """The address with its key; None before the console serves."""
        return self._address

    @property
    def has_ended(self) -> bool:
        return self._serving is not None and self._serving.done()

    def listen(self) -> None:
        """Take the port, before the cluster starts. Raises CommandError."""
        try:
            self._listening = listen(_HOST, self._port)
        except ListenError:
            raise CommandError(
                f"the console cannot listen on {_HOST}:{self._port}, which another program uses: "
                "choose other ports with --base-port, or leave --console out"
            ) from None

    def start(self, cluster: ProcessCluster) -> None:
        """Serve the pages of a cluster that serves."""
        assert self._listening is not None
        port = self._listening.getsockname()[1]
        settings = fresh_settings(_HOST, port, cluster.bootstrap_servers, _login_of(cluster))
        self._server = ConsoleServer(build(settings, ConsoleClients(settings)))
        serving = self._server.serve([self._listening])
        self._serving = asyncio.get_running_loop().create_task(serving)
        self._address = settings.address

    async def stop(self) -> None:
        """Also of a console that never served."""
        if self._server is not None and self._serving is not None:
            self._server.stop()
            await asyncio.wait({self._serving})
        if self._listening is not None:
            self._listening.close()


def _login_of(cluster: ProcessCluster) -> SecurityOptions:
    """The administrator's login as a user: pages about access and quotas need its rights."""
    if not cluster.is_secure:
        return {}
    from chaos.cluster_security import ADMIN

    return cluster.security.of_user(ADMIN)
