"""Decisions about brokers: registration, fencing, unfencing, controlled shutdown (KIP-500,
KIP-631, KIP-841)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from controller.listeners import check_listeners
from controller.machine import Context, ControllerResult, Decision
from controller.partitions import NOBODY, changes, is_leaderless
from controller.registration_bounds import check_bounds
from metadata.brokers import BrokerRegistration, Endpoint
from metadata.feature_levels import FeatureRange
from metadata.features import unsupported
from metadata.partitions import PartitionState
from stele.addresses import address_text
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, encode_uuid
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import UnregisterBrokerRequest, UnregisterBrokerResponse
from stele.wire.v1.controller_pb2 import (
    HeartbeatRequest,
    PartitionReference,
    RegisterBrokerRequest,
)

logger = logging.getLogger(__name__)

_PORT_MAX = 65535
_NAMED_MAX = 5  # partitions that a refusal names


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """The answer to a heartbeat."""

    fenced: bool
    caught_up: bool
    may_shut_down: bool


class OfBroker(Protocol):
    """A broker's request."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def broker_id(self) -> int: ...


class OfRegisteredBroker(OfBroker, Protocol):
    """A request of a broker that is registered."""

    @property
    def broker_epoch(self) -> int: ...


def register(
    context: Context, request: RegisterBrokerRequest, *, session_alive: bool
) -> ControllerResult[int]:
    """Register a broker's process. The reply is its broker epoch.

    ``session_alive``: whether the process that is registered under this id counts as alive.
    A registration fences the broker, which ends its leaderships. A new process never continues a
    leader epoch of the process before it: followers may have fetched records of that epoch that
    never reached the disk.
    Raises ApiError DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION and others for an invalid
    registration.
    """
    _check_registration(context, request)
    check_listeners(context, _endpoints(request), request.broker_id, request.inter_broker_listener)
    decision = Decision(context)
    existing = context.image.broker(request.broker_id)
    lost = _Losses(existing, request)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        # The same process registers again: it missed the answer, or it found broken replicas.
        _leave(decision, request.broker_id, leaving=NOBODY, lost=lost)
        return decision.result(existing.broker_epoch)
    if existing is not None and not existing.fenced and session_alive:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {request.broker_id} and alive; give this"
            " one another node.id, or stop the other",
        )
    if existing is not None:
        _warn_of_older(existing, request)
    broker_epoch = decision.next_offset
    decision.add(
        pb.MetadataRecord(
            register_broker=pb.RegisterBrokerRecord(
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                broker_epoch=broker_epoch,
                endpoints=request.endpoints,
                rack=request.rack,
                log_directories=request.log_directories,
                features=request.features,
                inter_broker_listener=request.inter_broker_listener,
                directories_marked=request.directories_marked,
            )
        )
    )
    _leave(decision, request.broker_id, leaving=frozenset({request.broker_id}), lost=lost)
    return decision.result(broker_epoch)


def _check_registration(context: Context, request: RegisterBrokerRequest) -> None:
    _check_cluster(context, request)
    if request.broker_id < 0 or not request.incarnation_id or not request.endpoints:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            "a registration needs a broker id, an incarnation id and endpoints",
        )
    check_bounds(request)
    for endpoint in request.endpoints:
        if not endpoint.listener or not endpoint.host or not 0 < endpoint.port <= _PORT_MAX:
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"broker {request.broker_id} cannot be found at {endpoint.listener}://"
                f"{address_text(endpoint.host, endpoint.port)}: correct advertised.listeners and "
                "grpc.advertised.listeners",
            )
    ranges = [FeatureRange(each.name, each.min_level, each.max_level) for each in request.features]
    if (reason := unsupported(context.image, ranges)) is not None:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"broker {request.broker_id} cannot join: {reason}"
        )


def _check_cluster(context: Context, request: OfBroker) -> None:
    if request.cluster_id != context.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id}, "
            f"this is {context.cluster_id}",
        )


def _endpoints(request: RegisterBrokerRequest) -> list[Endpoint]:
    return [Endpoint(e.listener, e.host, e.port, e.protocol) for e in request.endpoints]


class _Losses:
    """Which of a broker's replicas lost records, according to its registration.

    A log directory may be gone, or its disk may be in an earlier state. That costs the replicas in
    it. They are all those of the broker that none of its other directories holds.
    """

    def __init__(self, existing: BrokerRegistration | None, request: RegisterBrokerRequest) -> None:
        self._broker = frozenset({request.broker_id})
        self._reported = _keys(*request.corrupt, *request.unsynced)
        self._some_directory_is_lost = False
        self._held: set[PartitionId] = set()
        if existing is None:
            return
        older = _older_directories(existing, request)
        kept = {*existing.log_directories} & {*request.log_directories} - older
        if len(kept) < len(existing.log_directories) or _is_older(existing, request):
            self._some_directory_is_lost = True
            histories = [each for each in request.directory_histories if each.directory_id in kept]
            self._held = _keys(*(replica for each in histories for replica in each.replicas))

    def __call__(self, key: PartitionId) -> frozenset[int]:
        lost = self._some_directory_is_lost and key not in self._held
        return self._broker if lost or key in self._reported else NOBODY


def _keys(*references: PartitionReference) -> set[PartitionId]:
    return {PartitionId(each.topic_id, each.partition) for each in references}


def _older_directories(
    existing: BrokerRegistration, request: RegisterBrokerRequest
) -> frozenset[bytes]:
    """The log directories in a state from before the broker's last registration. They may lack any
    record that was acknowledged since."""
    if existing.incarnation_id == request.incarnation_id:
        return frozenset()  # it registers once more
    marked = existing.directories_marked
    return frozenset(
        each.directory_id
        for each in request.directory_histories
        if each.directory_id in existing.log_directories
        and (
            _is_other_epoch(existing, each.previous_broker_epoch)
            or (marked and existing.incarnation_id not in each.incarnation_ids)
        )
    )


def _is_older(existing: BrokerRegistration, request: RegisterBrokerRequest) -> bool:
    """The same of a broker of a version that says nothing of single directories."""
    return (
        not request.directory_histories
        and existing.incarnation_id != request.incarnation_id
        and _is_other_epoch(existing, request.previous_broker_epoch)
    )


def _is_other_epoch(existing: BrokerRegistration, told: int) -> bool:
    """Whether the last clean shutdown on a disk was not that of the last process (KIP-966).

    A process that is killed leaves no epoch, and loses nothing that counts: what was acknowledged
    is on disk. So no epoch is no news. KIP-966 takes it for a loss.
    """
    return told > 0 and told != existing.broker_epoch


def _warn_of_older(existing: BrokerRegistration, request: RegisterBrokerRequest) -> None:
    older = _older_directories(existing, request)
    if older or _is_older(existing, request):
        logger.error(
            "broker %d comes back with log directories in a state from before its last registration"
            " (%s): the replicas in them count as incomplete. Was a disk restored from a snapshot?",
            request.broker_id,
            ", ".join(encode_uuid(each) for each in sorted(older)) or "all",
        )


def _leave(
    decision: Decision, broker_id: int, *, leaving: frozenset[int], lost: _Losses | None = None
) -> None:
    """Change the partitions of a broker that is fenced, shuts down or has lost records.

    ``leaving`` and ``lost`` say who leaves the ISRs, as ``leaving`` and ``lossy`` of
    ``partitions.change``.
    """

    def concerned(state: PartitionState) -> bool:
        return broker_id in (state.isr if lost is None else state.replicas)

    decision.extend(
        changes(
            decision.image,
            decision.context.static,
            concerned,
            leaving=leaving,
            lossy=lost or (lambda key: NOBODY),
        )
    )


def current(context: Context, request: OfRegisteredBroker) -> BrokerRegistration:
    """The registration of the broker that asks.

    Raises ApiError INCONSISTENT_CLUSTER_ID, BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH if the
    broker has another registration by now. A broker of another cluster may have the same id and
    epoch. An older broker does not name its cluster.
    """
    if request.cluster_id:
        _check_cluster(context, request)
    broker_id, broker_epoch = request.broker_id, request.broker_epoch
    registration = context.image.broker(broker_id)
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if registration.broker_epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {registration.broker_epoch}, "
            f"not {broker_epoch}",
        )
    return registration


def heartbeat(
    context: Context, request: HeartbeatRequest, *, shutdown_offset: int | None
) -> ControllerResult[BrokerStanding]:
    """Unfence a broker that has caught up; fence it, or begin its shutdown, if it asks for that.

    ``shutdown_offset``: the offset of the decision that began its controlled shutdown, None before
    that. The broker may shut down once it has applied that decision, and therefore leads nothing.
    """
    registration = current(context, request)
    if registration.incarnation_id != request.incarnation_id:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is registered by another process",
        )
    # The registration is part of the metadata. Until the broker has applied it, the broker does
    # not know that it has lost what it led before.
    caught_up = request.metadata_offset >= registration.broker_epoch
    decision = Decision(context)
    fenced = registration.fenced
    may_shut_down = False
    if request.want_shutdown:
        if not fenced and not registration.in_controlled_shutdown:
            _begin_shutdown(decision, registration)
        elif fenced:
            may_shut_down = True
        elif shutdown_offset is not None and request.metadata_offset >= shutdown_offset:
            _fence(decision, registration)
            fenced = may_shut_down = True
    elif request.want_fence:
        if not fenced:
            _fence(decision, registration)
            fenced = True
    elif not fenced:
        _change_room(decision, registration, request)
    elif fenced and caught_up:
        # Others may have been unfenced since it registered.
        check_listeners(
            context,
            registration.endpoints,
            registration.broker_id,
            registration.inter_broker_listener,
        )
        _unfence(decision, replace(registration, out_of_room=request.out_of_room))
        fenced = False
    return decision.result(BrokerStanding(fenced, caught_up, may_shut_down))


def fence(context: Context, broker_id: int, broker_epoch: int) -> ControllerResult[bool]:
    """Fence a broker that is gone. The reply is False if there was nothing to do."""
    decision = Decision(context)
    registration = context.image.broker(broker_id)
    if registration is None or registration.broker_epoch != broker_epoch or registration.fenced:
        return decision.result(False)
    _fence(decision, registration)
    return decision.result(True)


def unregister(
    context: Context, request: UnregisterBrokerRequest
) -> ControllerResult[UnregisterBrokerResponse]:
    """Forget a broker that is gone for good. Assignments keep naming it until they are changed.

    A broker that registers under this id later may have other disks. So this one leaves every ISR
    and ELR as if it had lost its records. This is stricter than Kafka in two points: the broker
    must be fenced, and no partition may lose its last complete replica.
    Raises ApiError BROKER_ID_NOT_REGISTERED, INVALID_REQUEST.
    """
    broker_id = request.broker_id
    registration = context.image.broker(broker_id)
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if not registration.fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive: stop it before it can go"
        )
    _check_not_the_last(context, broker_id)
    decision = Decision(context)
    gone = frozenset({broker_id})
    decision.extend(
        changes(
            context.image,
            context.static,
            lambda state: broker_id in state.isr or broker_id in state.elr,
            lossy=lambda key: gone,
        )
    )
    decision.add(
        pb.MetadataRecord(
            unregister_broker=pb.UnregisterBrokerRecord(
                broker_id=broker_id, broker_epoch=registration.broker_epoch
            )
        )
    )
    return decision.result(UnregisterBrokerResponse())


def _check_not_the_last(context: Context, broker_id: int) -> None:
    alone = [
        f"{topic.name}-{number}"
        for topic, number, state in context.image.sorted_partitions()
        if broker_id in (*state.isr, *state.elr) and {*state.isr, *state.elr} == {broker_id}
    ]
    if alone:
        named = ", ".join(alone[:_NAMED_MAX]) + (", ..." if len(alone) > _NAMED_MAX else "")
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} alone has every record of {len(alone)} partitions ({named}): bring"
            " it back, or delete them, or elect other leaders uncleanly and lose records",
        )


def _state(
    registration: BrokerRegistration, *, fenced: bool, in_controlled_shutdown: bool
) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        broker_state=pb.BrokerStateRecord(
            broker_id=registration.broker_id,
            broker_epoch=registration.broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            out_of_room=registration.out_of_room,
        )
    )


def _fence(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(
        _state(
            registration,
            fenced=True,
            in_controlled_shutdown=registration.in_controlled_shutdown,
        )
    )
    _leave(decision, registration.broker_id, leaving=frozenset({registration.broker_id}))


def _begin_shutdown(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(_state(registration, fenced=False, in_controlled_shutdown=True))
    _leave(decision, registration.broker_id, leaving=frozenset({registration.broker_id}))


def _unfence(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(_state(registration, fenced=False, in_controlled_shutdown=False))
    decision.extend(changes(decision.image, decision.context.static, is_leaderless))


def _change_room(
    decision: Decision, registration: BrokerRegistration, request: HeartbeatRequest
) -> None:
    """A broker has run out of room, or has room again.

    A broker without room yields: where an in-sync replica has room, that one takes over. A broker
    that has room again takes over partitions whose leader has none. A preferred election gives it
    the others back.
    """
    broker_id, changed = registration.broker_id, request.out_of_room != registration.out_of_room
    if changed:
        told = replace(registration, out_of_room=request.out_of_room)
        shutting_down = registration.in_controlled_shutdown
        decision.add(_state(told, fenced=False, in_controlled_shutdown=shutting_down))
    yields = request.out_of_room and request.yields
    if not (yields or (changed and not request.out_of_room)):
        return
    image = decision.image

    def concerned(state: PartitionState) -> bool:
        return broker_id in state.isr and (yields or not image.has_room(state.leader))

    decision.extend(changes(image, decision.context.static, concerned))
