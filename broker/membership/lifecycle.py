"""The broker's standing with the controller: registered, fenced or not, and its lease.

One task registers and then holds one heartbeat stream to the active controller. The stream's
end is how the controller notices a killed process, so it is opened again at once wherever the
leadership goes (KIP-631's registration and heartbeats, on a stream).
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.membership.controller_client import ControllerClient
from broker.membership.identity import NO_EPOCH, BrokerIdentity
from broker.membership.lease import Lease
from broker.membership.room import Room
from raft.api import LeaderAndEpoch
from runtime.backoff import node_backoff
from runtime.grpc.requests import QUORUM_BYTES_MAX, parse
from runtime.silence import silence
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    ProbeRequest,
    ProbeResponse,
    RegisterBrokerRequest,
)
from stele.wire.v1.metadata_pb2 import Endpoint
from stele.world import Clock, RpcCode, RpcError, Stream
from world.network import Peer, Service

logger = logging.getLogger(__name__)

_SHUTDOWN_INTERVAL_S = 0.1
"""How often a broker that wants to shut down asks whether it may."""

NO_CONTROLLER_S = 2.0
"""How long a broker tries its controlled shutdown without any active controller: longer than an
election takes. If the controllers stop, too, no broker can take its leaderships over."""

_WARN_AGAIN_S = 15.0
"""How often the log says again why a broker is refused, while the reason stays the same."""

_HEARTBEAT = "/stele.v1.Controller/Heartbeat"

# Answers to a registration that asking again cannot change: the broker must not go on.
_FATAL = frozenset(
    {
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_STALE = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class BrokerState(enum.Enum):
    """Kafka's broker states."""

    STARTING = "starting"
    RECOVERY = "recovery"  # registered, fenced, catching up
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The settings of the same names in the node's configuration."""

    heartbeat_interval_ms: int
    session_timeout_ms: int
    registration_timeout_ms: int
    """How long to ask again while another process holds the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """What the broker can say of itself at any moment: registrations and heartbeats tell it."""

    endpoints: Callable[[], Sequence[Endpoint]]
    """Where the broker is found, once its ports are bound."""
    metadata_offset: Callable[[], int]
    """The last metadata offset that is applied; -1 before the first."""
    corrupt: Callable[[], Sequence[PartitionId]] = lambda: ()
    unsynced: Callable[[], Sequence[PartitionId]] = lambda: ()
    held: Callable[[], Mapping[bytes, Sequence[PartitionId]]] = dict
    """The replicas with a sound log, by directory id."""
    room: Callable[[], Room] = lambda: Room.ENOUGH
    failed_directories: Callable[[], Sequence[bytes]] = lambda: ()
    """The ids of log directories that have failed."""


class BrokerLifecycle:
    """Registers, heartbeats, keeps the lease and shuts down in good order."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        clock: Clock,
        controller: ControllerClient,
        timing: Timing,
        own: OwnState,
        on_failure: Callable[[ApiError], None] = lambda error: None,
    ) -> None:
        """``on_failure`` gets the reason why this broker can never join."""
        self.identity = identity
        self._clock = clock
        self._controller = controller
        self._interval_s = timing.heartbeat_interval_ms / 1000
        self._session_s = timing.session_timeout_ms / 1000
        self._registration_s = timing.registration_timeout_ms / 1000
        self._own = own
        self._on_failure = on_failure

        self._task: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        # the controller at the other end of the present stream
        self._followed: LeaderAndEpoch | None = None
        # Streams with a silent controller. They stay open while the lease rests on them: if that
        # controller is still active, it would fence a broker that ends its stream.
        self._silent: list[Stream] = []
        self._closing: set[asyncio.Task[None]] = set()  # held, or they could be collected
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._failure: ApiError | None = None

        self._duplicate_since: float | None = None  # refused so ever since, by another process
        self._warned = ("", 0.0)  # the last reason that was logged, and when

        # Of the newest registration. It is kept when the controller no longer knows that
        # registration.
        self._epoch = NO_EPOCH
        self._is_registered = False
        self._fenced = True
        # Whether a heartbeat of this registration has reported each of these changes of the
        # metadata.
        self._told_caught_up = False
        self._told_unfenced = False
        self._report_due = False  # a registration of the same epoch, with new corrupt replicas
        self._want_fence = False
        self._want_shutdown = False
        self._may_shut_down = False
        self._stopping = False

        # A metadata offset at which it led nothing, from the controller's answer; see `deposed`.
        self._leads_nothing_at = 0

        self._sequence = 0
        self._lease = Lease(clock, self._session_s, own.metadata_offset)

    # ------------------------------------------------------------------ what others ask

    @property
    def broker_epoch(self) -> int:
        """The epoch of the newest registration; -1 before the first.

        While the broker registers again it is the old epoch: requests under it are refused.
        """
        return self._epoch

    @property
    def fenced(self) -> bool:
        """Whether the controller's last answer said fenced; True before the first."""
        return self._fenced

    def deposed(self) -> bool:
        """Whether this broker's metadata is older than the offset at which it led nothing.

        Other brokers lead the partitions that it believes to lead. It must not act as a leader
        until it has applied that offset.
        """
        at = self._leads_nothing_at
        return at > 0 and self._own.metadata_offset() < at

    @property
    def state(self) -> BrokerState:
        if self._stopping:
            return BrokerState.SHUTTING_DOWN
        if self._want_shutdown:
            return BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if not self._is_registered:
            return BrokerState.STARTING
        return BrokerState.RECOVERY if self._fenced else BrokerState.RUNNING

    def lease_valid(self) -> bool:
        """Whether this broker is unfenced, and the controller cannot have ended its session yet.
        The metadata here contain the end of every earlier session."""
        return not self._fenced and self._lease.is_valid

    @property
    def followed(self) -> LeaderAndEpoch | None:
        """The controller to which the present heartbeat stream goes; None: there is none."""
        return self._followed

    @property
    def acknowledged_ago_s(self) -> float | None:
        """The time since the newest acknowledged heartbeat was sent; None before the first."""
        return self._lease.acknowledged_ago_s

    async def wait_registered(self) -> int:
        """Wait for the broker epoch. Raises ApiError when the controller refused for good."""
        while not self._is_registered:
            await self._wait_change()
        return self._epoch

    async def wait_unfenced(self) -> None:
        """Wait until the controller lets this broker serve. Raises as ``wait_registered``."""
        while self._fenced:
            await self._wait_change()

    async def _wait_change(self) -> None:
        if self._failure is not None:
            raise self._failure
        await self._changed.wait()

    async def _wait_briefly(self, timeout_s: float) -> None:
        """Wait for a change, but not longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def service(self) -> Service:
        """BrokerControl, which the controller calls."""
        return Service(unary={"/stele.v1.BrokerControl/Probe": self._probe})

    async def _probe(self, payload: bytes, _: Peer) -> bytes:
        parse(ProbeRequest, payload, bytes_max=QUORUM_BYTES_MAX)
        return ProbeResponse(
            broker_id=self.identity.broker_id,
            incarnation_id=self.identity.incarnation_id,
            cluster_id=self.identity.cluster_id,
        ).SerializeToString()

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to register and to heartbeat, until ``stop``."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"broker-{self.identity.broker_id}-lifecycle"
        )

    async def stop(self) -> None:
        """End the stream and the task. The lease is given up at once."""
        self._stopping = True
        self._fenced = True
        self._signal()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        silent, self._silent = self._silent, []
        await asyncio.gather(*(each.close() for each in silent), return_exceptions=True)

    def report_replicas(self) -> None:
        """Report replicas found corrupt since the registration to the controller.

        The same registration again, with its present lists: the epoch stays.
        """
        self._report_due = True
        if self._is_registered:
            self._lease.stream_left()
            self._end_stream()

    def fence(self) -> None:
        """Ask to be fenced for good, so that other brokers lead: this broker can serve no more."""
        self._want_fence = True
        self._wake.set()

    def disks_changed(self) -> None:
        """A disk is full, or no longer, or a log directory failed: report it to the controller at
        once."""
        self._wake.set()

    def access_changed(self) -> None:
        """ACLs, credentials or quotas were applied: report the offset at once.

        An administrator waits until every broker has them."""
        self._wake.set()

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Ask the controller to move the leaders away; return whether it said to go.

        Returns False after ``timeout_s``, earlier when there is no controller any more, and at
        once where there is nothing to ask for.
        """
        if self._task is None or not self._is_registered:
            return False
        self._want_shutdown = True
        self._wake.set()
        began = led_at = self._clock.monotonic()
        while not self._may_shut_down and self._failure is None:
            now = self._clock.monotonic()
            if self._controller.active_controller is not None:
                led_at = now
            if now - began >= timeout_s or now - led_at >= NO_CONTROLLER_S:
                logger.warning(
                    "broker %d: no controller allowed its shutdown within %.1f s; stopping anyway",
                    self.identity.broker_id,
                    now - began,
                )
                break
            await self._wait_briefly(_SHUTDOWN_INTERVAL_S)
        return self._may_shut_down

    def on_leader_change(self) -> None:
        """The quorum has another leader, or none as far as this node knows.

        While no other leader is known, the stream stays: its controller may still be active, and
        would fence a broker that ends its stream. Once another controller leads, the former one can
        fence no broker.
        """
        self._controller.on_leader_change()
        leader, followed = self._controller.leader, self._followed
        if leader.leader_id is None or leader == followed:
            return
        if followed is not None and leader.leader_id == followed.leader_id:
            # It leads again, and may have heard a heartbeat of this stream since.
            self._lease.stream_left()
        self._end_silent()
        self._end_stream()

    def on_metadata(self, *, unfenced: bool) -> None:
        """Metadata was applied; ``unfenced``: by it, this registration of ours is unfenced.

        Two events cause a heartbeat at once: that we caught up with our registration, because the
        controller may unfence us then; and that it did, because its answer confirms the lease.
        """
        if not self._fenced:
            return
        caught_up = self._own.metadata_offset() >= self._epoch
        if (caught_up, unfenced) > (self._told_caught_up, self._told_unfenced):
            self._told_caught_up, self._told_unfenced = caught_up, unfenced
            self._wake.set()

    # ------------------------------------------------------------------ the task

    async def _run(self) -> None:
        try:
            await self._stay_registered()
        except ApiError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("broker %d: the lifecycle ended", self.identity.broker_id)
            self._fail(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"lifecycle: {error!r}"))

    async def _stay_registered(self) -> None:
        """Register and heartbeat for ever. Raises ApiError when the broker may never join."""
        backoff = node_backoff()
        while True:
            known = self._controller.active_controller
            acknowledged = False
            try:
                while not self._is_registered or self._report_due:
                    await self._register()  # replicas found meanwhile need another report
                acknowledged = await self._heartbeat()
            except ApiError as error:
                if error.code in _FATAL or self._is_lasting_duplicate(error):
                    raise
                self._warn(error)
            except RpcError as error:
                logger.info("broker %d: heartbeat stream: %s", self.identity.broker_id, error)
            if self._controller.active_controller not in (None, known):
                backoff.reset()
                continue  # it moved while we spoke with the one before: to the new one at once
            await self._controller.wait_for_leader_change(backoff.next_s())
            if acknowledged:
                backoff.reset()

    async def _register(self) -> None:
        """One registration. Raises ApiError with the controller's refusal, or RpcError."""
        self._report_due = False  # replicas found from here on are another report
        try:
            answer = await self._controller.register(
                self._registration(), timeout_s=self._session_s
            )
            if answer.error != ErrorCode.NONE:
                raise ApiError(_code(answer.error), f"registration refused: {answer.message}")
        except (ApiError, RpcError):
            self._report_due = True
            raise
        self._duplicate_since = None
        if self._is_registered and answer.broker_epoch == self._epoch:
            return  # the same registration: only the report was new
        self._epoch = answer.broker_epoch
        self._is_registered = True
        self._fenced = True
        self._told_caught_up = self._told_unfenced = False
        self._lease.forget()
        logger.info("broker %d registered with epoch %d", self.identity.broker_id, self._epoch)
        self._signal()

    def _warn(self, error: ApiError) -> None:
        """Say why it is not registered: every new reason at once, the same one again rarely."""
        now, text = self._clock.monotonic(), str(error)
        said, at = self._warned
        if text == said and now - at < _WARN_AGAIN_S:
            return
        self._warned = text, now
        until = ""
        if self._duplicate_since is not None:
            left_s = self._duplicate_since + self._registration_s - now
            until = f" (it asks again, and gives up in {left_s:.0f} s)"
        logger.warning("broker %d: %s%s", self.identity.broker_id, text, until)

    def _is_lasting_duplicate(self, error: ApiError) -> bool:
        """Whether the id is held by another living process, not by a former one of ours whose
        session has yet to end."""
        if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return False
        now = self._clock.monotonic()
        if self._duplicate_since is None:
            self._duplicate_since = now
        return now - self._duplicate_since >= self._registration_s

    def _registration(self) -> RegisterBrokerRequest:
        return self.identity.registration(
            self._own.endpoints(),
            corrupt=self._own.corrupt(),
            unsynced=self._own.unsynced(),
            held=self._own.held(),
        )

    async def _heartbeat(self) -> bool:
        """Hold one stream until it ends; return whether any heartbeat of it was acknowledged."""
        target = self._controller.active_controller
        if target is None:
            return False
        stream = self._controller.stream(target, _HEARTBEAT)
        self._stream, self._followed = stream, self._controller.leader
        self._lease.stream_opened()
        self._wake.set()
        sender = asyncio.get_running_loop().create_task(
            self._send_heartbeats(stream), name=f"broker-{self.identity.broker_id}-heartbeats"
        )
        acknowledged = False
        try:
            while (answer := await self._receive(stream)) is not None:
                if not self._take(answer):
                    break
                acknowledged = True
        finally:
            self._stream = self._followed = None
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            if stream not in self._silent:
                await stream.close()
        return acknowledged

    async def _send_heartbeats(self, stream: Stream) -> None:
        """Send one each interval, and one whenever somebody woke us."""
        while True:
            interval_s = self._interval_s
            if self._want_shutdown:
                interval_s = min(interval_s, _SHUTDOWN_INTERVAL_S)
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self._sequence += 1
            room = self._own.room()
            request = HeartbeatRequest(
                broker_id=self.identity.broker_id,
                broker_epoch=self._epoch,
                incarnation_id=self.identity.incarnation_id,
                metadata_offset=self._own.metadata_offset(),
                want_fence=self._want_fence,
                want_shutdown=self._want_shutdown,
                sequence=self._sequence,
                out_of_room=room is not Room.ENOUGH,
                yields=room is Room.YIELDS,
                cluster_id=self.identity.cluster_id,
                offline_directories=self._own.failed_directories(),
            )
            self._lease.sent(self._sequence)
            try:
                await stream.send(request.SerializeToString())
            except RpcError as error:
                logger.debug("broker %d: heartbeat: %s", self.identity.broker_id, error)
                return  # the receiving side ends too, and opens the next stream

    async def _receive(self, stream: Stream) -> HeartbeatResponse | None:
        """The next answer; None at the stream's end. A silent controller is an RpcError.

        The time for which this process stood still does not count as silence.
        """
        silence_s = max(self._session_s / 2, 2 * self._interval_s)
        try:
            async with silence(silence_s):
                raw = await stream.receive()
        except TimeoutError:
            if self.lease_valid():
                self._silent.append(stream)
            else:
                self._end_silent()
            raise RpcError(
                RpcCode.DEADLINE_EXCEEDED, f"the controller was silent for {silence_s:g} s"
            ) from None
        try:
            return None if raw is None else HeartbeatResponse.FromString(raw)
        except DecodeError as error:
            raise RpcError(RpcCode.INTERNAL, "not a HeartbeatResponse") from error

    def _take(self, answer: HeartbeatResponse) -> bool:
        """Handle one answer. False when the stream is of no more use.

        Raises ApiError when the controller will never let this broker serve.
        """
        if answer.error in _STALE:
            logger.warning(
                "broker %d: epoch %d: %s; registering again",
                self.identity.broker_id,
                self._epoch,
                _code(answer.error).name,
            )
            self._is_registered = False
            self._fenced = True
            self._signal()
            return False
        if answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID:
            # Another cluster has got the controller's address. It knows nothing of this broker.
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"heartbeat: {answer.message}")
        if answer.error in _FATAL:
            raise ApiError(_code(answer.error), f"heartbeat refused: {answer.message}")
        if answer.error != ErrorCode.NONE:
            if answer.error != ErrorCode.NOT_CONTROLLER:
                logger.warning(
                    "broker %d: heartbeat: %s %s",
                    self.identity.broker_id,
                    _code(answer.error).name,
                    answer.message,
                )
                self._lease.stream_left()
            return False
        if self._lease.acknowledged(answer.sequence, answer.committed_offset):
            self._end_silent()
        self._leads_nothing_at = max(self._leads_nothing_at, answer.leads_nothing_at)
        if answer.fenced != self._fenced:
            logger.info(
                "broker %d is %s",
                self.identity.broker_id,
                "fenced" if answer.fenced else "unfenced",
            )
            self._fenced = answer.fenced
        self._may_shut_down = self._may_shut_down or answer.may_shut_down
        self._signal()
        return True

    # ------------------------------------------------------------------ helpers

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._close(stream)

    def _end_silent(self) -> None:
        silent, self._silent = self._silent, []
        for stream in silent:
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        task = asyncio.get_running_loop().create_task(stream.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _fail(self, error: ApiError) -> None:
        logger.error("broker %d cannot join the cluster: %s", self.identity.broker_id, error)
        self._failure = error
        self._signal()
        self._on_failure(error)

    def _signal(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _code(number: int) -> ErrorCode:
    """An error of the wire; one that this version does not know is a server's error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
