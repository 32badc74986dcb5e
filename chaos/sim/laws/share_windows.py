"""What the leaders of share partitions and the share coordinators hold in memory (KIP-932)."""

from __future__ import annotations

from broker.share.machine import SharePartition
from broker.share.values import RecordState
from broker.sharing.partition import LedSharePartition
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.laws.shared_records import RecordName, SharedRecords

_ACQUIRED = RecordState.ACQUIRED


class StartOffsetsPassDoneRecords(WithSharedRecords, Law):
    """The start offset of a share partition passes a record only when a member has decided about
    it, or when it may have been delivered in vain as often as the limit allows. The same holds of
    each record that a leader or a share coordinator takes for done. At one leader the start offset
    never goes back.

    A window has no hole, begins with a record that is not done, is no longer than
    share.partition.max.record.locks, and its acquired records have a holder and a lock.

    Where a topic has offsets without a record, only the windows are judged.
    """

    name = "a share partition's start offset passes only records that are done"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene, records: SharedRecords) -> None:
        super().__init__(scene, records)
        self._starts: dict[LedSharePartition, int] = {}
        # Everything below was looked at, by group, topic id and partition.
        self._looked_to: dict[tuple[str, bytes, int], int] = {}
        self._looked_at: set[RecordName] = set()

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not self._records.delivery_limits:
            return
        for node in cluster.brokers.values():
            if node.broker is not None:
                self._look_at(node, report)

    def _look_at(self, node: SimNode, report: Report) -> None:
        assert node.broker is not None
        sharing = node.broker.sharing
        for led in sharing.partitions:
            machine = led.machine
            if machine is None or led.key.group_id not in self._records.delivery_limits:
                continue
            self._check_start(node, led, machine, report)
            self._check_window(node, led, machine, report)
            final = [(each.first, each.last) for each in machine.ranges() if each.state.is_final]
            self._check_done(led.key, machine.start_offset, final, report)
        for _, _, coordinator in sharing.coordinators.each_active():
            for key, state in coordinator.states():
                if key.group_id in self._records.delivery_limits:
                    final = [(a, b) for a, b, persisted, _ in state.batches if persisted.is_final]
                    self._check_done(key, state.start_offset, final, report)

    def _check_start(
        self, node: SimNode, led: LedSharePartition, machine: SharePartition, report: Report
    ) -> None:
        before = self._starts.get(led, 0)
        self.looked += 1
        if machine.start_offset < before:
            report(
                f"{led!r} on broker {node.id} begins at {machine.start_offset}, and at {before} "
                "before"
            )
        self._starts[led] = machine.start_offset

    def _check_window(
        self, node: SimNode, led: LedSharePartition, machine: SharePartition, report: Report
    ) -> None:
        now_ms = int(node.machine.clock.monotonic() * 1000)
        limits = machine.limits
        end = machine.start_offset
        for each in machine.ranges():
            is_held = bool(each.holder) and each.lock_until_ms > 0
            if (
                each.first != end
                or each.last < each.first
                or (each.first == machine.start_offset and each.state.is_final)
                or is_held is not (each.state is _ACQUIRED)
                or each.lock_until_ms > now_ms + limits.record_lock_duration_ms
            ):
                report(
                    f"{led!r} on broker {node.id} has {each.state.name} from {each.first} to "
                    f"{each.last} for {each.holder!r} after {end}"
                )
            end = each.last + 1
        if end - machine.start_offset > limits.partition_max_record_locks:
            report(f"{led!r} on broker {node.id} has {end - machine.start_offset} in flight")

    def _check_done(
        self,
        key: tuple[str, bytes, int],
        start_offset: int,
        final: list[tuple[int, int]],
        report: Report,
    ) -> None:
        group_id, topic_id, number = key
        if group_id in self._records.have_gaps:
            return
        image = self._scene.metadata.newest
        topic = None if image is None else image.topic_by_id(topic_id)
        if topic is None:
            return
        looked_to = self._looked_to.get(key, 0)
        for first, last in [(looked_to, start_offset - 1), *final]:
            for offset in range(max(first, looked_to), last + 1):
                name = RecordName(group_id, (topic.name, number), offset)
                if name in self._looked_at:
                    continue
                self._looked_at.add(name)
                self.looked += 1
                if not self._records.may_be_done(name):
                    report(
                        f"share group {group_id}, {name.place} at {offset}: it is done, and no "
                        "member has decided about it"
                    )
        self._looked_to[key] = max(looked_to, start_offset)
