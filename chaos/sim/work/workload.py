"""The recorded work of a swarm run: producers, consumers and administration. In the end it compares
what clients were told with what the cluster holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from broker.replication.replica import ReplicaState
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.acknowledgements import Acknowledged
from chaos.sim.laws.deletions import DeletedRecordsStayDeleted
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.laws.members import MembersHaveEverything
from chaos.sim.laws.metadata_history import MetadataHistory
from chaos.sim.laws.retention import RetentionTakesNoMore
from chaos.sim.laws.served_readers import ReadersAreServed
from chaos.sim.work.administration import Administration
from chaos.sim.work.any_replica import AnyReplicaReader
from chaos.sim.work.compacted import CompactedWork
from chaos.sim.work.groups import GroupWork
from chaos.sim.work.habits import Impatient, Rude, Streamer
from chaos.sim.work.load import Load
from chaos.sim.work.rare import RareWork
from chaos.sim.work.readers import Reader
from chaos.sim.work.remade import AGAIN, Remade
from chaos.sim.work.transactions import TransactionWork
from stele.admin.admin import Admin
from stele.aio import Consumer, Producer
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.records import ConsumerRecord

PLAIN, EXACT, WEAK = "plain", "exact", "weak"
_PATIENCE_S = 3600.0
_ADMIN_PATIENCE_MS = 20_000
_SLOW_SYNC_S = 0.1


Record = tuple[str, int, int]  # topic, partition, offset


@dataclass(slots=True)
class History:
    """What brokers told clients."""

    promised: dict[Record, bytes] = field(default_factory=dict)  # acknowledged with acks=all
    acknowledged_weakly: int = 0
    consumed: dict[Record, bytes] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    errors: int = 0  # attempts that failed or whose outcome is unknown


class Workload:
    """Call ``prepare``, ``start``, and when the cluster is whole again ``finish`` and ``judge``."""

    def __init__(self, cluster: JudgedCluster, load: Load) -> None:
        self.history = History()
        self.acknowledged = cluster.invariants.law(Acknowledged)
        self._cluster = cluster
        self._client = cluster.client
        self._load = load
        world = cluster.client_world
        self._world = ClientWorld(world.clock, world.network, world.rng)
        self._servers = ",".join(f"{node.host}:9092" for node in cluster.brokers.values())
        self._rng = cluster.simulation.rngs.of("workload")
        self._haste = cluster.simulation.rngs.of("haste")
        self.metadata = cluster.invariants.law(MetadataHistory)
        self._retention = cluster.invariants.law(RetentionTakesNoMore)
        rngs = cluster.simulation.rngs
        self.administration = Administration(
            self._admin(),
            rngs.of("administration"),
            self.metadata,
            insync=self._raisable(),
            write=self._write_extra,
            deleted=cluster.invariants.law(DeletedRecordsStayDeleted).deleted,
        )
        self.readers = [
            Reader(cluster, self._admin(), rngs.of(f"reader {number}"), self.metadata)
            for number in range(load.readers)
        ]
        self._done = False
        self._settling = False
        self._tasks: list[asyncio.Task[None]] = []
        self._group_tasks: list[asyncio.Task[None]] = []  # end last, when nobody writes any more
        self.remade = self._remade() if load.wear.remake_pause_s else None
        self.groups = self._group_work() if load.groups.is_there else None
        self.compacted = self._compacted_work() if load.compacted.is_there else None
        self.transactions = self._transaction_work() if load.transactions.is_there else None
        self.rare = self._rare_work() if load.rare.is_there else None
        self.any_replica_readers = [
            AnyReplicaReader(
                self._client,
                rngs.of(f"any replica {number}"),
                sorted(cluster.brokers),
                self.partitions,
                lambda topic, number, offset, value: self._read((topic, number, offset), value),
                cluster.invariants.law(MembersHaveEverything).shown,
                cluster.invariants.law(ReadersAreServed).refused,
            )
            for number in range(load.any_replica.readers)
        ]

    def _compacted_work(self) -> CompactedWork:
        return CompactedWork(
            self._cluster, self._load.compacted, self._patient_producer(), self._violated
        )

    def _group_work(self) -> GroupWork:
        return GroupWork(
            self._cluster,
            self._load.groups,
            topics=dict.fromkeys((PLAIN, EXACT), self._load.partitions),
            vanishing=() if self.remade is None else (AGAIN,),
            deliver=lambda place, offset, value: self._read((*place, offset), value),
            report=self._violated,
        )

    def _transaction_work(self) -> TransactionWork:
        return TransactionWork(
            self._cluster,
            self._load.transactions,
            min_insync=self._load.min_insync,
            is_calm=lambda: self._done or self._settling,
            is_done=lambda: self._done,
            report=self._violated,
        )

    def _rare_work(self) -> RareWork:
        return RareWork(
            self._cluster,
            self._load.rare,
            self.partitions,
            deliver=lambda topic, number, offset, value: self._read((topic, number, offset), value),
            report=self._violated,
        )

    def _remade(self) -> Remade:
        self._cluster.invariants.law(LogsRememberWhatTheyHold).remade_topics.add(AGAIN)
        return Remade(
            self._client,
            self._cluster.simulation.rngs.of("remade"),
            self._violated,
            {
                "min.insync.replicas": str(self._load.min_insync),
                **self._load.wear.topic_configs(),
            },
            self._slow_disks,
        )

    @contextmanager
    def _slow_disks(self) -> Iterator[None]:
        """Make the syncs of all brokers slow."""
        machine = self._cluster.simulation.machine
        disks = [machine(node.host).disk for node in self._cluster.brokers.values()]
        for disk in disks:
            disk.faults.extra_sync_s = _SLOW_SYNC_S
        try:
            yield
        finally:
            for disk in disks:
                disk.faults.extra_sync_s = 0.0

    async def _write_extra(self, topic: str, partition: int, times: int) -> int:
        """Write a batch that will be deleted soon, and return its offset. Raises ApiError if no
        broker acknowledges it."""
        try:
            leader = await self._client.find_leader(topic, partition)
            return await self._client.produce(
                topic, b"x", broker=leader, partition=partition, times=times
            )
        except OSError as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _raisable(self) -> dict[str, int]:
        """The topics whose minimum administrators may raise, to 3 of 3 replicas, and lower again.
        They never lower it below the minimum that acknowledgements have promised."""
        if self._load.min_insync != 2:
            return {}
        return dict.fromkeys((PLAIN, EXACT, WEAK), self._load.min_insync)

    def _admin(self) -> Admin:
        return Admin(
            self._servers,
            world=self._world,
            on_wait=lambda _: None,
            default_api_timeout_ms=_ADMIN_PATIENCE_MS,
        )

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [
            (topic, number)
            for topic in (PLAIN, EXACT, WEAK)
            for number in range(self._load.partitions)
        ]

    @property
    def replicated(self) -> list[tuple[str, int]]:
        """``partitions``, those of the coordinators and of transactions, and compacted ones."""
        found = self.partitions
        if self.groups is not None:
            found += self.groups.coordinated
        if self.compacted is not None:
            found += self.compacted.partitions
        if self.transactions is not None:
            found += [each for each in self.transactions.partitions if each not in found]
        return found

    async def prepare(self) -> None:
        configs = {
            "min.insync.replicas": str(self._load.min_insync),
            "segment.bytes": str(self._load.segment_bytes),
            **self._load.wear.topic_configs(),
        }
        if self.remade is not None:
            await self.remade.prepare()
        for topic in (PLAIN, EXACT, WEAK):
            creation = self.metadata.creation_asked(topic)
            await self._client.create_topic(
                topic, partitions=self._load.partitions, configs=configs
            )
            creation.confirmed()
        for topic, number in self.partitions:
            await self._cluster.until_isr(topic, 3, number)
        if self.groups is not None:
            await self.groups.prepare()
        if self.compacted is not None:
            await self.compacted.prepare()
        if self.transactions is not None:
            await self.transactions.prepare()

    def start(self) -> None:
        load = self._load
        work: list[Coroutine[Any, Any, None]] = []
        work += [self._produce_exactly_once(n) for n in range(load.exact_producers)]
        work += [self._write_plainly(n) for n in range(load.plain_writers)]
        work += [self._write_weakly(n) for n in range(load.weak_writers)]
        work += [self._consume() for _ in range(load.consumers)]
        if load.admin_pause_s:
            work.append(self.administration.run(load.admin_pause_s, lambda: self._done))
        work += [reader.run(load.read_pause_s, lambda: self._done) for reader in self.readers]
        work += [
            reader.run(load.any_replica.pause_s, lambda: self._done)
            for reader in self.any_replica_readers
        ]
        if load.stream_pause_s:
            work.append(self._streamer().run(load.exact_producers, lambda: self._done))
        if load.admin_pause_s:
            work.append(self._impatient().run(load.admin_pause_s, lambda: self._done))
        work += [self._rude().run(n, lambda: self._done) for n in range(load.rude_writers)]
        if self.remade is not None:
            work += self._remade_work(self.remade)
        if self.compacted is not None:
            work += self.compacted.work(lambda: self._done)
        if self.transactions is not None:
            work += self.transactions.work(lambda: self._done)
        if self.rare is not None:
            work += self.rare.work(lambda: self._done or self._settling, lambda: self._done)
        self._tasks = [asyncio.create_task(each) for each in work]
        if self.groups is not None:
            members = self.groups.work(lambda: self._done or self._settling)
            self._group_tasks = [asyncio.create_task(each) for each in members]

    def _remade_work(self, remade: Remade) -> list[Coroutine[Any, Any, None]]:
        """The work on the remade topic. Writers and readers go on for a while after its last
        deletion."""
        producer = Producer(
            self._servers, world=self._world, on_wait=lambda _: None, delivery_timeout_ms=5000
        )
        consumer = Consumer(
            self._servers, world=self._world, on_wait=lambda _: None, auto_offset_reset="earliest"
        )
        return [
            remade.make_anew(self._load.wear.remake_pause_s, lambda: self._done or self._settling),
            remade.write(0, self._load.plain_pause_s, lambda: self._done),
            remade.stream(producer, lambda: self._done),
            remade.read(consumer, lambda: self._done),
        ]

    def settle(self) -> None:
        """Stop making the topic anew."""
        self._settling = True

    def check_going(self) -> None:
        """Raise the error that has ended any part of the work too early."""
        for task in (*self._tasks, *self._group_tasks):
            if task.done() and not self._done:
                task.result()

    async def finish(self, timeout_s: float) -> None:
        """Begin no new work, and wait until everything under way has ended."""
        self._done = True
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*self._tasks)
        if self.transactions is not None:
            await self.transactions.finish()
        if self.groups is not None:
            await self.groups.finish(self._ends())
            await asyncio.gather(*self._group_tasks)

    def _ends(self) -> dict[tuple[str, int], int]:
        """The offsets behind the last acknowledged records."""
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset in self.history.promised:
            ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
        return ends

    def _violated(self, what: str) -> None:
        self.history.violations.append(f"at {self._cluster.simulation.now:.6f}: {what}")

    def _promise(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        place = topic, partition, offset
        earlier = self.history.promised.setdefault(place, value)
        if earlier != value:
            self._violated(f"{place} was promised to {earlier!r} and to {value!r}")
        if offset >= self._newest_start_of(topic, partition):
            self.acknowledged.check_record(
                self._cluster, f"{topic}-{partition}", value, self._load.min_insync, self._violated
            )

    def _newest_start_of(self, topic: str, partition: int) -> int:
        """``_start_of`` at this very moment: the newest of what laws have seen and what brokers
        hold now. The broker with the newest start may be down: it acknowledges a record, deletes it
        by retention and loses power, and its answer arrives after that."""
        newest = self._retention.named.get((topic, partition), 0)
        for broker in self._cluster.brokers.values():
            for replica in hosted_by(broker):
                if (
                    replica.id.partition == partition
                    and replica.topic == topic
                    and replica.state is ReplicaState.ONLINE
                    and replica.log.start_offset > newest
                ):
                    newest = replica.log.start_offset
        return newest

    async def _pause(self, pause_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(0.5, 1.5) * pause_s)

    # ----------------------------------------------------------------------------- producing

    async def _produce_exactly_once(self, producer_number: int) -> None:
        producer = self._patient_producer()
        number = 0
        while not self._done:
            partition = self._rng.randrange(self._load.partitions)
            sent = []
            for _ in range(self._load.batch_records):
                number += 1
                value = b"<e%d-%d>" % (producer_number, number)
                sent.append((value, await producer.send(EXACT, value, partition=partition)))
            for value, delivery in sent:
                told = await delivery
                if told.offset >= 0:
                    self._promise(EXACT, told.partition, told.offset, value)
            await self._pause(self._load.exact_pause_s)
        await producer.close()

    def _patient_producer(self, linger_ms: int = 1) -> Producer:
        """It never gives up a record."""
        return Producer(
            self._servers,
            world=self._world,
            on_wait=lambda _: None,
            linger_ms=linger_ms,
            delivery_timeout_ms=int(_PATIENCE_S * 1000),
            max_block_ms=int(_PATIENCE_S * 1000),
        )

    def _streamer(self) -> Streamer:
        load, producer = self._load, self._patient_producer(linger_ms=5)
        return Streamer(
            producer, EXACT, load.partitions, load.stream_pause_s, self._rng, self._promise
        )

    def _impatient(self) -> Impatient:
        return Impatient(self._client, self._rng, self._violated)

    def _rude(self) -> Rude:
        load = self._load
        return Rude(
            self._client,
            PLAIN,
            load.partitions,
            load.plain_pause_s,
            self._rng,
            self._promise,
            self._violated,
        )

    async def _write_plainly(self, writer: int) -> None:
        number = 0
        while not self._done:
            number += 1
            partition = self._rng.randrange(self._load.partitions)
            await self._client.produce_until_acknowledged(
                PLAIN, b"<p%d-%d>" % (writer, number), partition=partition, give_up_s=_PATIENCE_S
            )
            self._promise(*self._client.acknowledged[-1])
            await self._pause(self._load.plain_pause_s)

    async def _write_weakly(self, writer: int) -> None:
        """Write with acks=1: the record is on the leader's disk, but may get lost with it."""
        number = 0
        while not self._done:
            number += 1
            partition = self._rng.randrange(self._load.partitions)
            value = b"<w%d-%d>" % (writer, number)
            try:
                leader = await self._client.find_leader(WEAK, partition)
                epoch = self._epoch_led(WEAK, partition, leader)
                offset = await self._client.produce(
                    WEAK, value, broker=leader, partition=partition, acks=1, timeout_s=3.0
                )
            except (ApiError, OSError):
                self.history.errors += 1
            else:
                self.history.acknowledged_weakly += 1
                # A deposed leader may have truncated the record already: check only if the broker
                # still leads in the same epoch.
                stands = offset >= self._newest_start_of(WEAK, partition)
                if (
                    stands
                    and epoch is not None
                    and epoch == self._epoch_led(WEAK, partition, leader)
                ):
                    self.acknowledged.check_record(
                        self._cluster, f"{WEAK}-{partition}", value, 1, self._violated
                    )
            await self._pause(self._load.weak_pause_s)

    def _epoch_led(self, topic: str, partition: int, broker: int) -> int | None:
        """The leader epoch by the committed metadata. None if another broker leads, or if no
        established controller knows."""
        if self._cluster.established_controller is None:
            return None
        found = self._cluster.image.topic(topic)
        state = None if found is None else found.partitions[partition]
        return state.leader_epoch if state is not None and state.leader == broker else None

    # ------------------------------------------------------------------- consuming and more

    async def _has_all(self, consumer: Consumer, positions: Mapping[tuple[str, int], int]) -> bool:
        """Retention may delete the last records of a partition before the consumer reads them."""
        ends = await consumer.end_offsets(self.partitions)
        return all(
            max(positions.get((topic, n), 0), self._newest_start_of(topic, n)) >= end
            for (topic, n), end in ends.items()
        )

    async def _consume(self) -> None:
        consumer = Consumer(
            self._servers, world=self._world, on_wait=lambda _: None, auto_offset_reset="earliest"
        )
        consumer.assign(self.partitions)
        positions: dict[tuple[str, int], int] = {}
        while not (self._done and await self._has_all(consumer, positions)):
            for record in await self._poll(consumer):
                place = record.topic, record.partition
                expected = positions.get(place, 0)
                if record.offset != expected and not (
                    expected < record.offset <= self._newest_start_of(*place)
                ):
                    self._violated(f"read {place} at {record.offset} instead of {expected}")
                positions[place] = record.offset + 1
                self._read((*place, record.offset), record.value or b"")
        await consumer.close()

    async def _poll(self, consumer: Consumer) -> list[ConsumerRecord]:
        """The application breaks polls off now and then, as signals and timeouts do. The next poll
        must go on where the application is."""
        if self._haste.random() < 0.7:
            return await consumer.poll(timeout_ms=500)
        try:
            async with asyncio.timeout(self._haste.uniform(0.0, 0.3)):
                return await consumer.poll(timeout_ms=500)
        except TimeoutError:
            return []

    def _read(self, place: Record, value: bytes) -> None:
        earlier = self.history.consumed.setdefault(place, value)
        if earlier != value:
            self._violated(f"read {value!r} at {place}, and {earlier!r} before")

    # --------------------------------------------------------------------------------- judging

    async def judge(self) -> int:
        """Read everything back and compare. Returns the number of records compared."""
        self.metadata.end(self._cluster.image)
        compared = 0
        read = [
            (name, await self._client.read_back(*name))  # in the order of the partitions
            for name in self.partitions
        ]
        if self.compacted is not None:
            await self.compacted.judge()
        if self.transactions is not None:
            await self.transactions.judge()
        again = None if self.remade is None else self._cluster.image.topic(AGAIN)
        remade = await self._client.read_back(AGAIN) if again is not None else []
        # Retention may have deleted more since the last look.
        self._cluster.invariants.check_everything()
        for name, records in read:
            compared += self._judge(*name, records)
        if self.groups is not None:
            self.groups.judge(
                ((topic, partition), offset)
                for topic, partition, offset in self.history.promised
                if topic in (PLAIN, EXACT) and offset >= self._start_of(topic, partition)
            )
        if self.remade is not None:
            if again is None:
                self.remade.judge_absence()
            else:
                self.remade.judge(again.topic_id, remade, self._start_of(AGAIN, 0))
        return compared + len(remade)

    def _start_of(self, topic: str, partition: int) -> int:
        """How far retention has deleted. A law of its own judges that (``retention``)."""
        found = self._cluster.image.topic(topic)
        assert found is not None
        key = PartitionId(found.topic_id, partition)
        return self._retention.starts.get(key, 0)

    def _judge(self, topic: str, partition: int, records: list[tuple[int, bytes]]) -> int:
        name = f"{topic}-{partition}"
        found = dict(records)
        first = records[0][0] if records else 0
        if [offset for offset, _ in records] != list(range(first, first + len(records))):
            self._violated(f"{name}: offsets have gaps or come twice")
        start = self._start_of(topic, partition)
        if first > start:
            self._violated(f"{name} begins at {first}, and its replicas at {start} at most")
        if len({value for _, value in records}) != len(records):
            self._violated(f"{name}: a record is there twice")
        for told, what in (
            (self.history.promised, "acknowledged"),
            (self.history.consumed, "read"),
        ):
            for (of_topic, of_partition, offset), value in told.items():
                if (of_topic, of_partition) != (topic, partition) or offset < start:
                    continue
                if found.get(offset) != value:
                    self._violated(
                        f"{name}: {value!r} at {offset} was {what}; there is {found.get(offset)!r}"
                    )
        if topic == EXACT:
            self._judge_order(name, [value for _, value in records])
        return len(records)

    def _judge_order(self, name: str, values: list[bytes]) -> None:
        last: dict[bytes, int] = {}
        for value in values:
            producer, _, number = value.strip(b"<>").partition(b"-")
            if int(number) <= last.get(producer, 0):
                self._violated(f"{name}: {value!r} comes after number {last[producer]}")
            last[producer] = int(number)
