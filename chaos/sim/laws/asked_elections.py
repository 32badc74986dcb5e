"""Elections of partition leaders that administrators ask for."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.wire import Said, Stage
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from runtime.administration.changes import ELECT_LEADERS
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1.admin_pb2 import ElectLeadersRequest, ElectLeadersResponse


class ElectionsAreAsAsked(Law):
    """A controller that confirms an election has elected: the preferred leader, or any leader if it
    was asked for an unclean election. A controller that refuses one has a reason.

    It has decided on metadata between those of the arrival and those of the answer.
    """

    name = "elections are as asked"
    cadence = Cadence.TOLD
    hears = (ELECT_LEADERS.method,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._arrivals = Arrivals[MetadataImage]()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def hear(self, stage: Stage, said: Said) -> None:
        if stage is Stage.SENT or (now := self._image_at(said.target)) is None:
            return
        if (then := self._arrivals.met(stage, said, now)) is not None:
            self._check(said, then, now)

    def _image_at(self, machine: str) -> MetadataImage | None:
        """The committed metadata of the active controller, if it is on this machine. On any other
        a broker hands the request on, and the controller beside it may lag."""
        for node in self._cluster.controllers.values():
            if node.host == machine and node.node is not None:
                controller = node.node.controller
                return controller.image if controller is not None and controller.active else None
        return None

    def _check(self, said: Said, then: MetadataImage, now: MetadataImage) -> None:
        request = ElectLeadersRequest.FromString(said.request)
        unclean = request.unclean
        response = ElectLeadersResponse.FromString(said.answer)
        if response.error or response.already_done:
            return
        answers = [*response.partitions]
        if not request.partitions:  # then those that need no election are left out
            told = {(answer.topic, answer.partition) for answer in answers}
            answers += [
                ElectLeadersResponse.Partition(
                    topic=topic.name, partition=number, error=ErrorCode.ELECTION_NOT_NEEDED
                )
                for topic, number, _ in now.sorted_partitions()
                if (topic.name, number) not in told
            ]
        for answer in answers:
            place = TopicPartition(answer.topic, answer.partition)
            before, after = then.named_partition(place), now.named_partition(place)
            if before is None or after is None:
                continue  # it came or went meanwhile
            self.looked += 1
            if before.partition_epoch == after.partition_epoch:
                is_right = _is_right(ErrorCode(answer.error), after, now, unclean=unclean)
                # Brokers may have come or gone meanwhile.
                is_right |= _is_right(ErrorCode(answer.error), after, then, unclean=unclean)
            else:
                is_right = answer.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (
                    answer.error != ErrorCode.NONE or _was_elected(before, after, unclean=unclean)
                )
            if not is_right:
                kind = "an unclean election" if unclean else "the preferred leader"
                self._report(
                    f"{said.target}, asked for {kind} of {answer.topic}-{answer.partition}, "
                    f"answers {ErrorCode(answer.error).name}; it was {before} and is {after}"
                )


def _is_right(
    error: ErrorCode, state: PartitionState, image: MetadataImage, *, unclean: bool
) -> bool:
    """Whether the answer fits a partition that was this all the time."""
    is_led = state.leader != NO_LEADER
    if error is ErrorCode.ELECTION_NOT_NEEDED:
        return is_led if unclean else state.leader == state.preferred_leader
    if error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        return unclean and not is_led
    if error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        preferred = state.preferred_leader
        could_lead = (
            preferred in state.isr
            and image.is_active(preferred)
            and image.has_online(preferred, state.directory_of(preferred))
        )
        return not unclean and not (could_lead and image.has_room(preferred))
    return error is ErrorCode.POLICY_VIOLATION  # a success would have changed it


def _was_elected(before: PartitionState, after: PartitionState, *, unclean: bool) -> bool:
    """Whether an election between the two may have succeeded."""
    if after.partition_epoch - before.partition_epoch > 1:
        return after.leader_epoch > before.leader_epoch
    elected = after.leader != NO_LEADER if unclean else after.leader == after.preferred_leader
    return elected and after.leader_epoch > before.leader_epoch
