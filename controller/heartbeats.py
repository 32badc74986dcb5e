"""The driver of ``controller.liveness``: heartbeat streams, probes and fencing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError

from controller import cluster
from controller.active import DecisionMaker
from controller.cluster import BrokerStanding
from controller.liveness import PROBE_TIMEOUT_S, Fence, Liveness, Probe, Silence
from metadata.brokers import BrokerRegistration, Endpoint, Plane
from metadata.topics import Topics
from runtime.grpc.requests import QUORUM_BYTES_MAX, parse
from stele.addresses import Address
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    ProbeRequest,
    ProbeResponse,
)
from stele.world import Clock, Connector, RpcCode, RpcError, Stream
from world.network import Peer

logger = logging.getLogger(__name__)

PROBE_METHOD = "/stele.v1.BrokerControl/Probe"


class Heartbeats:
    """Serves the brokers' heartbeat streams, probes brokers, and fences brokers that are gone."""

    def __init__(
        self,
        decisions: DecisionMaker,
        *,
        session_timeout_ms: int,
        listener: str,
        clock: Clock,
        brokers: Connector,
        leader_id: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """``listener``: the listener whose gRPC endpoint is probed; "" for any. ``wake`` is called
        when ``deadline`` may be earlier than before."""
        self._decisions = decisions
        self._listener = listener
        self._clock = clock
        self._brokers = brokers
        self._leader_id = leader_id
        self._wake = wake
        self._liveness = Liveness(session_timeout_ms / 1000)
        # By broker epoch: the offset of the decision that began the broker's controlled shutdown.
        self._shutdown_offsets: dict[int, int] = {}
        # By broker that yields: the topics and brokers of the image after it last yielded. While
        # the newest image has the same objects, there is nothing more to yield.
        self._yielded: dict[int, tuple[object, object]] = {}
        # By broker without room: the topics that were examined, and whether it leads any of them.
        self._led_by_full: dict[int, tuple[Topics, bool]] = {}
        # By broker: its epoch and the metadata offset that its newest heartbeat reported.
        self._applied: dict[int, tuple[int, int]] = {}
        self._heard = asyncio.Event()  # set, and replaced, with each heartbeat
        self._streams: dict[int, Stream] = {}
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._number = 0

    # ---------------------------------------------------------------- life

    def claimed(self) -> None:
        """This node has become the active controller."""
        self._shutdown_offsets.clear()
        self._led_by_full.clear()
        self._yielded.clear()
        self._applied.clear()
        registrations = self._decisions.newest.sorted_brokers()
        self._liveness.claimed(self._clock.monotonic(), registrations)
        self._wake()

    def resigned(self) -> None:
        """This node is no longer the active controller. Its brokers have to find the new one."""
        self._liveness.resigned()
        for number in sorted(self._streams):
            stream = self._streams[number]
            self._keep(asyncio.get_running_loop().create_task(stream.close()))

    async def stop(self) -> None:
        self.resigned()
        tasks = [self._probes[number] for number in sorted(self._probes)]
        for task in tasks:
            if task.get_name() == "probe":
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference to a task until it is done: the event loop keeps only a weak one."""
        number = self._next_number()
        self._probes[number] = task
        task.add_done_callback(lambda _: self._probes.pop(number, None))

    # ---------------------------------------------------------------- streams

    async def serve(self, stream: Stream, _: Peer) -> None:
        """One broker's stream, until either side ends it.

        Heartbeats are read while an answer waits for the quorum, so that a slow quorum makes no
        broker look silent. A heartbeat contains a state. So only the newest one is answered.
        """
        number = self._next_number()
        self._streams[number] = stream
        newest: asyncio.Queue[HeartbeatRequest | None] = asyncio.Queue(maxsize=1)
        reader = asyncio.get_running_loop().create_task(self._read(stream, number, newest))
        broker_id: int | None = None
        try:
            while (request := await newest.get()) is not None:
                broker_id = request.broker_id
                await stream.send((await self._answer(request)).SerializeToString())
                if not self._decisions.active:
                    break
            else:
                await reader  # it raises what broke the stream
        except RpcError as error:
            logger.info("heartbeat stream of broker %s broke: %s", broker_id, error)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self._streams.pop(number, None)
            await stream.close()

    async def _read(
        self, stream: Stream, number: int, newest: asyncio.Queue[HeartbeatRequest | None]
    ) -> None:
        """Put each heartbeat of the stream in the place of the one before it, and None at the
        stream's end. Raises RpcError if the stream is broken."""
        broker_id: int | None = None

        def put(request: HeartbeatRequest | None) -> None:
            if newest.full():
                newest.get_nowait()
            newest.put_nowait(request)

        try:
            while (payload := await stream.receive()) is not None:
                request = parse(HeartbeatRequest, payload, bytes_max=QUORUM_BYTES_MAX)
                if broker_id not in (None, request.broker_id):
                    raise RpcError(RpcCode.INVALID_ARGUMENT, "a stream belongs to one broker")
                broker_id = request.broker_id
                self._hear(request, number)
                put(request)
        finally:
            if broker_id is not None:
                self._liveness.stream_ended(self._clock.monotonic(), broker_id, number)
                self._wake()
            put(None)

    def _hear(self, request: HeartbeatRequest, stream: int) -> None:
        """Count a heartbeat of the current registration as a sign of life."""
        registration = self._decisions.newest.broker(request.broker_id)
        if (
            self._decisions.active
            and registration is not None
            and registration.broker_epoch == request.broker_epoch
            and registration.incarnation_id == request.incarnation_id
        ):
            self._liveness.heartbeat(self._clock.monotonic(), registration, stream)
            self._applied[request.broker_id] = request.broker_epoch, request.metadata_offset
            self._heard.set()
            self._heard = asyncio.Event()
            self._wake()

    async def applied_everywhere(self, offset: int, patience_s: float) -> list[int]:
        """Wait until every live broker has applied the metadata up to ``offset``, so many seconds
        at most. Returns the brokers that have not, by id. A fenced broker is not waited for,
        because it may be cut off for long."""
        try:
            async with asyncio.timeout(patience_s):
                while self._lagging(offset):
                    await self._heard.wait()
        except TimeoutError:
            pass
        return self._lagging(offset)

    def _lagging(self, offset: int) -> list[int]:
        return [
            each.broker_id
            for each in self._decisions.committed.sorted_brokers()
            if not each.fenced and not self._has_applied(each, offset)
        ]

    def _has_applied(self, registration: BrokerRegistration, offset: int) -> bool:
        epoch, applied = self._applied.get(registration.broker_id, (-1, -1))
        return epoch == registration.broker_epoch and applied >= offset

    async def _answer(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer one heartbeat. An answer without an error begins the broker's lease.

        So a majority must confirm that this controller still led when it had the heartbeat. Another
        controller may have been elected long ago without this one knowing it. That one gives each
        broker a session from its own election on, and then fences it. Then a lease from a later
        heartbeat would outlast the session. For example, the next controller is elected at second 5
        and fences at second 8, and a heartbeat of second 7 would begin a lease until second 10.
        """
        response = HeartbeatResponse(sequence=request.sequence, fenced=True)
        try:
            standing = await self._heartbeat(request)
            confirmed = await self._decisions.linearizable()
        except ApiError as error:
            # The next controller simply makes a lost decision again.
            lost = error.code is ErrorCode.REQUEST_TIMED_OUT
            response.error = ErrorCode.NOT_CONTROLLER if lost else error.code
            response.message = explain(response.error, error.message)
            response.committed_offset = self._decisions.committed.offset
        else:
            response.fenced = standing.fenced
            response.caught_up = standing.caught_up
            response.may_shut_down = standing.may_shut_down
            response.leads_nothing_at = self._leads_nothing_at(request)
            response.committed_offset = confirmed.offset
        response.leader_id = self._leader_id()
        return response

    async def _heartbeat(self, request: HeartbeatRequest) -> BrokerStanding:
        before = self._decisions.newest
        standing = self._decide(request)
        after = self._decisions.newest
        if request.want_shutdown:
            self._shutdown_offsets.setdefault(request.broker_epoch, after.offset)
        changing = standing.fenced != self._committed_fenced(request.broker_id)
        if (after is not before or changing) and not await self._decisions.settled():
            raise ApiError(ErrorCode.NOT_CONTROLLER, "leadership was lost")
        return standing

    def _leads_nothing_at(self, request: HeartbeatRequest) -> int:
        """A metadata offset at which the broker leads nothing. 0 if it leads something, if it has
        room, or if it has the newest metadata.

        A broker whose disk is full may be unable to store the metadata that deposes it.
        """
        image = self._decisions.committed
        if not request.out_of_room or request.metadata_offset >= image.offset:
            return 0
        known = self._led_by_full.get(request.broker_id)
        if known is None or known[0] is not image.topics:
            leads = any(
                state.leader == request.broker_id for _, _, state in image.sorted_partitions()
            )
            known = self._led_by_full[request.broker_id] = image.topics, leads
        return 0 if known[1] else image.offset

    def _decide(self, request: HeartbeatRequest) -> BrokerStanding:
        """Decide about a heartbeat, without waiting for the commit. Raises ApiError."""
        shutdown_offset = self._shutdown_offsets.get(request.broker_epoch)

        def submit(asked: HeartbeatRequest) -> BrokerStanding:
            return self._decisions.submit(
                lambda context: cluster.heartbeat(context, asked, shutdown_offset=shutdown_offset)
            )

        asked, newest = HeartbeatRequest(), self._decisions.newest
        asked.CopyFrom(request)
        # Yielding looks at every partition, so it happens once per change of the metadata.
        known = self._yielded.get(request.broker_id, (None, None))
        if known[0] is newest.topics and known[1] is newest.brokers:
            asked.yields = False
        try:
            standing = submit(asked)
        except ApiError as error:
            registration = newest.broker(request.broker_id)
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or registration is None:
                raise
            # This controller's own disk is full. The broker must not lose its session for that.
            asked.out_of_room, asked.yields = registration.out_of_room, False
            del asked.offline_directories[:]
            return submit(asked)
        if request.yields:
            newest = self._decisions.newest
            self._yielded[request.broker_id] = newest.topics, newest.brokers
        return standing

    def _committed_fenced(self, broker_id: int) -> bool:
        registration = self._decisions.committed.broker(broker_id)
        return registration is None or registration.fenced

    # ---------------------------------------------------------------- duties

    def deadline(self) -> float | None:
        """When ``run_due`` has something to do, in seconds of the monotonic clock."""
        return self._liveness.deadline()

    def resumed(self) -> None:
        """This process stood still for a while: give brokers time to be heard."""
        self._liveness.resumed(self._clock.monotonic())

    def run_due(self) -> None:
        """Send the probes and do the fencings that are due."""
        for action in self._liveness.due(self._clock.monotonic()):
            if isinstance(action, Probe):
                task = asyncio.get_running_loop().create_task(self._probe(action), name="probe")
                self._keep(task)
            else:
                self._fence(action)

    def _fence(self, action: Fence) -> None:
        try:
            done = self._decisions.submit(
                lambda context: cluster.fence(context, action.broker_id, action.broker_epoch)
            )
        except ApiError as error:
            logger.warning("broker %d could not be fenced: %s", action.broker_id, error)
            registration = self._decisions.newest.broker(action.broker_id)
            if self._decisions.active and registration is not None:
                self._liveness.not_fenced(self._clock.monotonic(), registration, action)
            return
        if done:
            self._decisions.metrics.timed_out_brokers += 1
            logger.warning("broker %d is fenced: %s", action.broker_id, action.reason)

    # ---------------------------------------------------------------- probes

    def alive(self, registration: BrokerRegistration) -> bool:
        """Whether the process of that registration counts as alive."""
        return self._liveness.alive(registration.broker_id, registration.broker_epoch)

    async def probe(self, registration: BrokerRegistration) -> None:
        """Probe a broker now, and fence it if it turns out to be gone."""
        await self._probe(Probe(registration.broker_id, registration.broker_epoch))
        self.run_due()

    async def _probe(self, probe: Probe) -> None:
        registration = self._decisions.newest.broker(probe.broker_id)
        if registration is None or registration.broker_epoch != probe.broker_epoch:
            return
        endpoint = self._endpoint(registration)
        answer = Silence.NO_ANSWER if endpoint is None else await self._ask(endpoint)
        self._liveness.probed(self._clock.monotonic(), probe, answer)
        self._wake()

    def _endpoint(self, registration: BrokerRegistration) -> Endpoint | None:
        named = registration.endpoint(self._listener, Plane.GRPC)
        if named is not None:
            return named
        others = [endpoint for endpoint in registration.endpoints if endpoint.plane is Plane.GRPC]
        return others[0] if others else None

    async def _ask(self, endpoint: Endpoint) -> bytes | Silence:
        channel = self._brokers.channel(Address(endpoint.host, endpoint.port))
        try:
            payload = await channel.call(
                PROBE_METHOD, ProbeRequest().SerializeToString(), timeout_s=PROBE_TIMEOUT_S
            )
            return ProbeResponse.FromString(payload).incarnation_id
        except (RpcError, DecodeError) as error:
            refused = isinstance(error, RpcError) and error.code in (
                RpcCode.UNAVAILABLE,
                RpcCode.UNIMPLEMENTED,  # another service listens there now
            )
            return Silence.REFUSED if refused else Silence.NO_ANSWER
        finally:
            await channel.close()
