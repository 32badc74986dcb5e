"""Producer ids, which identify the batches of an idempotent producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stele.cluster.missing_right import CLIENTS_USER, allowing, principal_of
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.errors import ApiError, ErrorCode, SteleError, UnreachableError
from stele.producer.idempotence import Identity


class ProducerIds:
    """Gets new producer ids from the cluster. ``newest`` is the last one."""

    def __init__(
        self,
        view: ClusterView,
        on_news: Callable[[], None],
        on_refused: Callable[[SteleError], None],
    ) -> None:
        self.newest: Identity | None = None
        self.reason = ""  # why there is no producer id yet, in words
        self._view = view
        self._on_news = on_news
        self._on_refused = on_refused
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Get another producer id, unless that is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._obtain())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _obtain(self) -> None:
        """Try until it succeeds. Meanwhile the delivery timeouts of batches limit the waiting."""
        backoff = client_backoff(self._view.config, self._view.world)
        while True:
            try:
                code, producer_id, epoch = await self._view.ask_any(
                    self._view.plane.init_producer_id()
                )
            except UnreachableError as error:
                self.reason = f"no producer id yet: {error}"
            except ApiError as error:
                self._on_refused(error)
                return
            else:
                if code is ErrorCode.NONE:
                    self.newest = Identity(producer_id, epoch)
                    self.reason = ""
                    self._on_news()
                    return
                self.reason = f"no producer id yet: {code.name}"
                if not code.retriable:
                    self._on_refused(ApiError(code, self._why_refused(code)))
                    return
            pause_s = backoff.next_s()
            if backoff.failures > 2:
                self._view.waiting.say(self.reason, "producer id")
            await asyncio.sleep(pause_s)

    def _why_refused(self, code: ErrorCode) -> str:
        """Kafka's answer has no text."""
        if code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return "the cluster gives no producer id"
        security = self._view.world.connector.security
        return (
            f"{principal_of(security) or CLIENTS_USER} has no WRITE on any topic, nor "
            "IDEMPOTENT_WRITE on the cluster: an idempotent producer needs one of both. Allow it "
            f"to write to its topic ({allowing(security, 'WRITE', 'topic', 'NAME')}), or set "
            "enable_idempotence=False"
        )
