"""Decisions about brokers: registration, fencing, unfencing, controlled shutdown (KIP-500,
KIP-631, KIP-841)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.listeners import check_listeners
from controller.losses import Losses, warn_of_older
from controller.machine import Context, ControllerResult, Decision
from controller.partitions import NOBODY, changes, is_leaderless, nobody_lost
from controller.registration_bounds import check_bounds
from metadata.brokers import BrokerRegistration, Endpoint, state_record
from metadata.directories import REPLICA_DIRECTORIES
from metadata.feature_levels import FeatureRange
from metadata.features import metadata_version, require, unsupported
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from stele.addresses import address_text
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import UnregisterBrokerRequest, UnregisterBrokerResponse
from stele.wire.v1.controller_pb2 import HeartbeatRequest, RegisterBrokerRequest

_PORT_MAX = 65535
_NAMED_MAX = 5  # partitions that a refusal names
EARLIER_MAX: Final = 32
"""So many earlier processes of a broker are remembered."""


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
    lost = Losses(existing, request)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        # The same process registers again: it missed the answer, or it found broken replicas.
        _leave(decision, request.broker_id, leaving=NOBODY, lost=lost)
        return decision.result(existing.broker_epoch)
    if request.incarnation_id in context.image.brokers.earlier_incarnations(request.broker_id):
        raise _comes_too_late(request.broker_id, unregistered=existing is None)
    if existing is not None and not existing.fenced and session_alive:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {request.broker_id} and alive; give this"
            " one another node.id, or stop the other",
        )
    if existing is not None:
        warn_of_older(existing, request)
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
                earlier_incarnations=_earlier(context.image, request),
            )
        )
    )
    registered = decision.image.brokers[request.broker_id]
    if lost.offline_directories:
        decision.add(
            state_record(
                replace(
                    registered,
                    offline_directories=lost.offline_directories,
                    last_uses=lost.last_uses,
                )
            )
        )
    _leave(decision, request.broker_id, leaving=frozenset({request.broker_id}), lost=lost)
    return decision.result(broker_epoch)


def _comes_too_late(broker_id: int, *, unregistered: bool) -> ApiError:
    """The refusal of an earlier process. An unregistered one stops at it instead of asking again:
    nothing but a new start can bring it back."""
    if unregistered:
        return ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id} was unregistered after this process had registered, so this "
            "process cannot join again: start the broker anew if it is to come back",
        )
    return ApiError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"a later process has been registered as broker {broker_id}, so this request "
        "of an earlier process comes too late: if the earlier process is to stay, stop the "
        "later one and start the earlier one again",
    )


def _earlier(image: MetadataImage, request: RegisterBrokerRequest) -> list[bytes]:
    """The processes before the one that registers, the latest last: those that the metadata know,
    and those that its log directories know, which may never have been registered.

    A request may arrive after the death of its process, when a later process is registered. If it
    counted, the later process would seem to come with a disk from before this registration, and
    would lose its place in every ISR.
    """
    known = image.brokers.earlier_incarnations(request.broker_id)
    if (existing := image.broker(request.broker_id)) is not None:
        known += (existing.incarnation_id,)
    told = (each for history in request.directory_histories for each in history.incarnation_ids)
    earlier = dict.fromkeys((*known, *told))
    earlier.pop(request.incarnation_id, None)
    return list(earlier)[-EARLIER_MAX:]


def _check_registration(context: Context, request: RegisterBrokerRequest) -> None:
    _check_cluster(context, request)
    if request.broker_id < 0 or not request.incarnation_id or not request.endpoints:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            "a registration needs a broker id, an incarnation id and endpoints",
        )
    check_bounds(request)
    if request.unopened_directories:
        what = f"broker {request.broker_id} with log directories that cannot be opened"
        require(context.image, REPLICA_DIRECTORIES, what)
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


def _leave(
    decision: Decision, broker_id: int, *, leaving: frozenset[int], lost: Losses | None = None
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
            lossy=nobody_lost if lost is None else lost.lossy,
            directories=None if lost is None else lost.directories,
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
    # The registration is part of the metadata. Until the broker has applied it, it does not know
    # that it has lost its former leaderships.
    caught_up = request.metadata_offset >= registration.broker_epoch
    decision = Decision(context)
    registration = _note_offline(decision, registration, request)
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
    """Remove a broker that is gone for good. Assignments keep naming it until they are changed.

    Its processes cannot register again: a request of one of them may still be under way.
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
            lossy=lambda key, state: gone,
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


def _state(registration: BrokerRegistration, **changes: bool) -> pb.MetadataRecord:
    """The record that gives a broker this state, but for the fields in ``changes``."""
    return state_record(replace(registration, **changes))  # type: ignore[arg-type]


def _fence(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(_state(registration, fenced=True))
    _leave(decision, registration.broker_id, leaving=frozenset({registration.broker_id}))


def _begin_shutdown(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(_state(registration, fenced=False, in_controlled_shutdown=True))
    _leave(decision, registration.broker_id, leaving=frozenset({registration.broker_id}))


def _unfence(decision: Decision, registration: BrokerRegistration) -> None:
    decision.add(_state(registration, fenced=False, in_controlled_shutdown=False))
    decision.extend(changes(decision.image, decision.context.static, is_leaderless))


def _note_offline(
    decision: Decision, registration: BrokerRegistration, request: HeartbeatRequest
) -> BrokerRegistration:
    """Log directories of the broker have failed: its replicas in them leave the ISRs.

    A replica that alone has everything stays in the ISR without leading, as that of a fenced broker
    does: its disk may be read again. The result is the broker's registration after that.
    """
    failed = {*request.offline_directories} & {*registration.log_directories}
    failed -= {*registration.offline_directories}
    if not failed or metadata_version(decision.image) < REPLICA_DIRECTORIES:
        return registration
    offline = tuple(sorted({*registration.offline_directories, *failed}))
    changed = replace(registration, offline_directories=offline)
    decision.add(state_record(changed))
    broker_id = registration.broker_id
    decision.extend(
        changes(
            decision.image,
            decision.context.static,
            lambda state: broker_id in state.isr and state.directory_of(broker_id) in failed,
            leaving=frozenset({broker_id}),
        )
    )
    return changed


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
        decision.add(_state(registration, out_of_room=request.out_of_room))
    yields = request.out_of_room and request.yields
    if not (yields or (changed and not request.out_of_room)):
        return
    image = decision.image

    def concerned(state: PartitionState) -> bool:
        return broker_id in state.isr and (yields or not image.has_room(state.leader))

    decision.extend(changes(image, decision.context.static, concerned))
