"""What a broker counts, by Kafka's meanings (kafka.server, kafka.network)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from broker.coordinator.groups import GroupCoordinators
from broker.coordinator.markers import MarkerSender
from broker.coordinator.transactions import TransactionCoordinators
from broker.membership.room import Rooms
from broker.replication.cleaner import Cleaner
from broker.replication.measures import ReplicaMeasures
from broker.replication.moves import DirectoryMoves
from broker.replication.replicas import ReplicaCounters
from broker.sharing.partitions import SharePartitions
from runtime.kafka.requests import Queue
from runtime.metrics.registry import Counter, Histogram, MetricsRegistry
from stele.ids import TopicPartition
from storage.directory import LogDirectory

_TOTALS = (
    ("messages_in", "Records appended for producers (MessagesInPerSec)."),
    ("bytes_in", "Bytes of record batches from producers (BytesInPerSec)."),
    ("bytes_out", "Bytes of record batches to consumers (BytesOutPerSec)."),
    ("replication_bytes_in", "Bytes fetched from leaders (ReplicationBytesInPerSec)."),
    ("replication_bytes_out", "Bytes fetched by followers (ReplicationBytesOutPerSec)."),
    ("throttled_bytes_in", "Bytes fetched of throttled replicas (FollowerReplication byte-rate)."),
    ("throttled_bytes_out", "Bytes sent of throttled replicas (LeaderReplication byte-rate)."),
    ("failed_produce_total", "Partitions refused in Produce (FailedProduceRequestsPerSec)."),
    (
        "refused_producers_total",
        "Batches of new producers refused because a partition had producer.ids.max of them.",
    ),
    ("isr_shrinks_total", "ISR members taken out by this leader (IsrShrinksPerSec)."),
    ("isr_expands_total", "ISR members taken in by this leader (IsrExpandsPerSec)."),
    (
        "transactions_cut_total",
        "Transactions that lost records or a marker here by an unclean election.",
    ),
)
_BY_TOPIC = (
    ("messages_in", "stele_topic_messages_in", "Records appended, by topic (MessagesInPerSec)."),
    ("bytes_in", "stele_topic_bytes_in", "Bytes from producers, by topic (BytesInPerSec)."),
    ("bytes_out", "stele_topic_bytes_out", "Bytes to consumers, by topic (BytesOutPerSec)."),
    (
        "replication_bytes_out",
        "stele_topic_replication_bytes_out",
        "Bytes to followers, by topic (ReplicationBytesOutPerSec).",
    ),
)
_PRESENT = (
    ("leader_count", "Partitions that this broker leads (LeaderCount)."),
    ("partition_count", "Replicas on this broker (PartitionCount)."),
    ("producer_ids", "Producers that the logs here remember, by partition (ProducerIdCount)."),
    ("under_replicated", "Led partitions with fewer in sync than assigned."),
    ("under_min_isr", "Led partitions below min.insync.replicas (UnderMinIsrPartitionCount)."),
    ("at_min_isr", "Led partitions exactly at min.insync.replicas (AtMinIsrPartitionCount)."),
    ("reassigning", "Led partitions that are being moved (ReassigningPartitions)."),
    ("offline_replicas", "Replicas whose directory or log cannot be used (OfflineReplicaCount)."),
)
_NAMES = {
    "failed_produce_total": "stele_failed_produce_requests",
    "refused_producers_total": "stele_refused_producers",
    "isr_shrinks_total": "stele_isr_shrinks",
    "isr_expands_total": "stele_isr_expands",
    "transactions_cut_total": "stele_transactions_cut",
    "under_replicated": "stele_under_replicated_partitions",
    "under_min_isr": "stele_under_min_isr_partition_count",
    "at_min_isr": "stele_at_min_isr_partition_count",
    "reassigning": "stele_reassigning_partitions",
    "offline_replicas": "stele_offline_replica_count",
}


class RequestMeter:
    """What is counted of the requests of one API."""

    __slots__ = ("_local", "_remote", "_requests", "_seconds", "_waits")

    def __init__(
        self,
        requests: Counter,
        seconds: Histogram,
        local: Histogram,
        remote: Histogram,
        waits: dict[Queue, Histogram],
    ) -> None:
        self._requests = requests
        self._seconds = seconds
        self._local = local
        self._remote = remote
        self._waits = waits

    def answered(self, took_s: float, local_s: float | None = None) -> None:
        """Count a request, so long after its arrival. ``local_s``: after so much of that its
        handler had returned and it waited; None: it was answered before."""
        self._requests.value += 1
        self._seconds.observe(took_s)
        if local_s is None:
            self._local.observe(took_s)
        else:
            self._local.observe(local_s)
            self._remote.observe(took_s - local_s)

    def waited(self, queue: Queue, waited_s: float) -> None:
        """Count the wait of a request, or of its answer, within its connection."""
        self._waits[queue].observe(waited_s)


class BrokerMetrics:
    """The counters that request handling adds to; the rest is read at each scrape."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self.requests = registry.counters(
            "stele_requests",
            "Answered requests, by API (RequestsPerSec).",
            "api",
        )
        self.failures = registry.counters(
            "stele_request_failures", "Requests whose handler failed unexpectedly, by API.", "api"
        )
        self.request_seconds = registry.histograms(
            "stele_request_seconds",
            "Time from a request's arrival to its answer, waiting included, by API (TotalTimeMs).",
            "api",
        )
        self.local_seconds = registry.histograms(
            "stele_request_local_seconds",
            "Time from a request's arrival until its handler has done its part, by API "
            "(LocalTimeMs).",
            "api",
        )
        self.remote_seconds = registry.histograms(
            "stele_request_remote_seconds",
            "How long requests wait for replicas, the disk or records (RemoteTimeMs).",
            "api",
        )
        self.queue_seconds = registry.histograms(
            "stele_request_queue_seconds",
            "How long requests wait for the answer before on their connection, by API "
            "(RequestQueueTimeMs).",
            "api",
        )
        self.answer_queue_seconds = registry.histograms(
            "stele_response_queue_seconds",
            "How long answers wait for earlier answers of their connection, or are encoded in "
            "slices, by API (ResponseQueueTimeMs).",
            "api",
        )
        self._meters: dict[str, RequestMeter] = {}
        self.produce_waiting = 0
        registry.gauge(
            "stele_produce_purgatory_size",
            "Produce requests that wait for replication or disk (PurgatorySize).",
            lambda: self.produce_waiting,
        )

    def of_requests(self, api: str) -> RequestMeter:
        """The meter of an API, made at its first use."""
        meter = self._meters.get(api)
        if meter is None:
            meter = RequestMeter(
                self.requests(api),
                self.request_seconds(api),
                self.local_seconds(api),
                self.remote_seconds(api),
                {
                    Queue.REQUESTS: self.queue_seconds(api),
                    Queue.ANSWERS: self.answer_queue_seconds(api),
                },
            )
            self._meters[api] = meter
        return meter

    def read_replicas(self, counters: Callable[[], ReplicaCounters]) -> None:
        """Declare what the replica manager counts."""

        def reader(field: str) -> Callable[[], float]:
            return lambda: float(getattr(counters(), field))

        for field, help_text in _TOTALS:
            self._registry.total(_NAMES.get(field, f"stele_{field}"), help_text, reader(field))
        for field, help_text in _PRESENT:
            self._registry.gauge(_NAMES.get(field, f"stele_{field}"), help_text, reader(field))

    def read_fetches(self, waiting: Callable[[], int]) -> None:
        """Declare how many fetches wait."""
        self._registry.gauge(
            "stele_fetch_purgatory_size",
            "Fetch requests that wait for records (PurgatorySize).",
            waiting,
        )

    def read_partitions(self, measures: ReplicaMeasures, samples_max: int) -> None:
        """Declare what topics move and partitions hold; each metric has ``samples_max`` samples at
        most."""

        def by_topic(field: str) -> Callable[[], dict[str, float]]:
            return lambda: {
                topic: float(getattr(traffic, field))
                for topic, traffic in islice(measures.traffic(), samples_max)
            }

        for field, name, help_text in _BY_TOPIC:
            self._registry.totals(name, help_text, "topic", by_topic(field))
        self._registry.samples(
            "stele_log_size_bytes",
            "Bytes of each replica's log on this broker (Size).",
            ("topic", "partition"),
            lambda: (
                ((name.topic, str(name.partition)), float(size))
                for name, size in islice(measures.log_sizes(), samples_max)
            ),
        )
        self._registry.samples(
            "stele_replica_lag",
            "Records that a follower of a led partition does not have on disk yet (ConsumerLag).",
            ("topic", "partition", "replica"),
            lambda: (
                ((name.topic, str(name.partition), str(broker_id)), float(lag))
                for name, broker_id, lag in islice(measures.replica_lags(), samples_max)
            ),
        )
        self._registry.gauge(
            "stele_replica_max_lag",
            "The most records that any follower of a led partition lacks (MaxLag).",
            lambda: float(max((lag for _, _, lag in measures.replica_lags()), default=0)),
        )

    def read_directories(
        self, directories: Sequence[LogDirectory], unopened: Sequence[str], rooms: Rooms
    ) -> None:
        """Declare what each log directory can still take; the list is complete by the scrapes.
        ``unopened``: the paths of those that are offline since the start."""

        def by_path(read: Callable[[LogDirectory], float]) -> Callable[[], dict[str, float]]:
            return lambda: {each.path: read(each) for each in directories}

        self._registry.gauges(
            "stele_log_directory_free_bytes",
            "Bytes that are free on the file system of a log directory.",
            "directory",
            by_path(lambda each: float(rooms.free_bytes(each.path))),
        )
        self._registry.gauges(
            "stele_log_directory_offline",
            "1 for a log directory whose disk failed or cannot be opened (LogDirectoryOffline).",
            "directory",
            lambda: {
                **dict.fromkeys(unopened, 1.0),
                **{each.path: float(each.offline is not None) for each in directories},
            },
        )
        self._registry.gauges(
            "stele_log_directory_full",
            "1 for a log directory that refused a write because it was full, until there is room.",
            "directory",
            by_path(lambda each: float(each.path in rooms.full)),
        )

        seconds = self._registry.histograms(
            "stele_log_flush_seconds",
            "How long each sync of a log directory takes (LogFlushRateAndTimeMs).",
            "directory",
        )
        for directory in directories:
            directory.on_synced(seconds(directory.path).observe)

    def read_thin_streams(self, count_by_method: Callable[[], dict[str, float]]) -> None:
        """Declare the streams of thin clients."""
        self._registry.gauges(
            "stele_thin_streams",
            "Open streams of stele.v1.Log, by method.",
            "method",
            count_by_method,
        )

    def read_moves(self, moves: DirectoryMoves) -> None:
        """Declare what moves between the log directories tell."""
        self._registry.gauge(
            "stele_replica_moves",
            "Replicas that are being copied to another log directory, or wait for that.",
            lambda: float(len(moves)),
        )

    def read_cleaner(self, cleaner: Cleaner, directories: Sequence[LogDirectory]) -> None:
        """Declare what compaction tells; the list is complete by the scrapes."""
        self._registry.gauge(
            "stele_cleaner_recopy_percent",
            "Percentage of the read bytes that the last compaction wrote (cleaner-recopy-percent).",
            lambda: cleaner.recopy_percent,
        )
        self._registry.gauge(
            "stele_max_dirty_percent",
            "The greatest dirty part of a compacted log (max-dirty-percent).",
            lambda: cleaner.max_dirty_percent,
        )
        self._registry.total(
            "stele_cleaner_rounds",
            "Compactions of a log since the start.",
            lambda: float(cleaner.rounds),
        )
        self._registry.gauges(
            "stele_uncleanable_partitions_count",
            "Logs whose compaction failed and is not tried again (uncleanable-partitions-count).",
            "directory",
            lambda: {each.path: float(cleaner.uncleanable_in(each)) for each in directories},
        )

    def read_transactions(
        self, transactions: TransactionCoordinators, markers: MarkerSender
    ) -> None:
        """Declare what transaction coordinators have and do."""
        loads, decided = transactions.counters, transactions.transaction_counters
        self._registry.gauges(
            "stele_transactional_ids",
            "Transactional ids that this broker coordinates, by the state of their transaction.",
            "state",
            transactions.transactions_by_state,
        )
        self._registry.gauge(
            "stele_transaction_partitions",
            "Partitions of __transaction_state that this broker coordinates.",
            lambda: float(len(transactions.partitions)),
        )
        self._registry.gauge(
            "stele_transaction_markers_pending",
            "Markers that are due and not known to be written "
            "(TransactionMarkerChannelManager's queues).",
            lambda: float(markers.pending),
        )
        self._registry.total(
            "stele_transaction_commits",
            "Transactions that were committed, with all markers written.",
            lambda: decided.commits,
        )
        self._registry.total(
            "stele_transaction_aborts",
            "Transactions that were aborted, with all markers written.",
            lambda: decided.aborts,
        )
        self._registry.total(
            "stele_transaction_timeouts",
            "Transactions that were aborted because they timed out.",
            lambda: decided.timeouts,
        )
        self._registry.total(
            "stele_transactional_id_expirations",
            "Transactional ids that expired unused.",
            lambda: decided.expirations,
        )
        self._registry.total(
            "stele_transaction_loads",
            "Loads of transaction coordinators from their logs.",
            lambda: loads.loads,
        )
        self._registry.total(
            "stele_transaction_load_failures",
            "Loads that failed and are tried again.",
            lambda: loads.failed_loads,
        )
        self._registry.total(
            "stele_transaction_load_records",
            "Records read by loads of transaction coordinators.",
            lambda: loads.records,
        )
        self._registry.gauge(
            "stele_transaction_load_seconds_max",
            "The longest load of a transaction coordinator since the start.",
            lambda: loads.longest_s,
        )

    def read_sharing(self, partitions: SharePartitions) -> None:
        """Declare what the share partitions of this broker have and do. Records are counted."""
        measures = partitions.measures
        self._registry.gauge(
            "stele_share_partitions",
            "Share partitions whose partitions this broker leads.",
            lambda: float(sum(1 for _ in partitions)),
        )
        self._registry.gauge(
            "stele_share_window_records",
            "Records of all share partitions from the first that is not done to the last delivered "
            "(InFlightMessageCount).",
            lambda: float(sum(count for count, _ in partitions.windows)),
        )
        self._registry.gauge(
            "stele_share_full_windows",
            "Share partitions that deliver nothing new before records are done.",
            lambda: float(sum(is_full for _, is_full in partitions.windows)),
        )
        self._registry.total(
            "stele_share_deliveries",
            "Records given to members of share groups.",
            lambda: measures.deliveries,
        )
        self._registry.total(
            "stele_share_redeliveries",
            "Records given to members of share groups that were delivered before.",
            lambda: measures.redeliveries,
        )
        self._registry.totals(
            "stele_share_acknowledgements",
            "Records that members have acknowledged, by type (RecordAcknowledgementsPerSec).",
            "type",
            lambda: {kind.name.lower(): count for kind, count in measures.answered.items()},
        )
        self._registry.gauge(
            "stele_share_waiting_dead_letters",
            "Records that share groups have given up, and whose dead letters are not written yet.",
            lambda: float(partitions.waiting_letters),
        )
        self._registry.gauge(
            "stele_share_troubled_dead_letters",
            "Share partitions whose dead letters cannot be written now.",
            lambda: float(partitions.troubled_letters),
        )
        self._registry.total(
            "stele_share_dead_letters",
            "Dead letters of share groups that were written.",
            lambda: measures.letters,
        )
        self._registry.total(
            "stele_share_lost_dead_letters",
            "Records that share groups have given up without the dead letter that they should have "
            "had.",
            lambda: measures.lost_letters,
        )

    def read_groups(self, groups: GroupCoordinators) -> None:
        """Declare what the coordinators of consumer groups have and do."""
        counters = groups.counters
        self._registry.gauges(
            "stele_groups",
            "Consumer groups that this broker coordinates, by state (NumGroups).",
            "state",
            groups.groups_by_state,
        )
        self._registry.gauges(
            "stele_groups_by_protocol",
            "Consumer groups that this broker coordinates, by protocol (group-count).",
            "protocol",
            groups.groups_by_protocol,
        )
        self._registry.gauge(
            "stele_group_partitions",
            "Partitions of __consumer_offsets that this broker coordinates.",
            lambda: float(len(groups.partitions)),
        )
        self._registry.total(
            "stele_group_loads", "Loads of coordinators from their logs.", lambda: counters.loads
        )
        self._registry.total(
            "stele_group_load_failures",
            "Loads that failed and are tried again.",
            lambda: counters.failed_loads,
        )
        self._registry.total(
            "stele_group_load_records", "Records read by loads.", lambda: counters.records
        )
        self._registry.gauge(
            "stele_group_load_seconds_max",
            "The longest load since the start (partition-load-time-max).",
            lambda: counters.longest_s,
        )
        self._registry.total(
            "stele_group_load_seconds", "Time of all loads together.", lambda: counters.total_s
        )
        self._registry.total(
            "stele_group_load_bytes",
            "Bytes of keys and values read by loads.",
            lambda: counters.record_bytes,
        )
        decided = groups.group_counters
        self._registry.total(
            "stele_group_rebalances",
            "Rebalances that were completed (group-completed-rebalance-count).",
            lambda: decided.rebalances,
        )
        self._registry.total(
            "stele_group_offset_commits",
            "Offsets of partitions that groups committed (offset-commit-count).",
            lambda: decided.offset_commits,
        )
        self._registry.total(
            "stele_group_offset_removals",
            "Offsets that expired or were deleted (offset-expiration-count, -deletion-count).",
            lambda: decided.offset_removals,
        )
        self._registry.gauge(
            "stele_group_offsets",
            "Committed offsets of groups (NumOffsets).",
            lambda: float(groups.offset_count),
        )

    def read_lags(
        self,
        groups: GroupCoordinators,
        high_watermarks: Callable[[], Iterator[tuple[TopicPartition, int]]],
        samples_max: int,
    ) -> None:
        """Declare both ends of the groups' lags: Prometheus subtracts them.

        The coordinator knows the committed offset, and the partition's leader, which may be another
        broker, the high watermark. ``samples_max``: the most samples of each of the two.
        """
        committed, ends = "stele_group_committed_offset", "stele_high_watermark"
        self._registry.samples(
            committed,
            "Offsets committed by groups that this broker coordinates.",
            ("group", "topic", "partition"),
            lambda: (
                ((group, name.topic, str(name.partition)), offset)
                for group, name, offset in islice(groups.committed_offsets(), samples_max)
            ),
        )
        self._registry.samples(
            ends,
            "High watermarks of partitions that this broker leads (consumers' LogEndOffset).",
            ("topic", "partition"),
            lambda: (
                ((name.topic, str(name.partition)), offset)
                for name, offset in islice(high_watermarks(), samples_max)
            ),
        )
        self._registry.gauges(
            "stele_lag_samples_left_out",
            "Samples that metrics.offsets.max left out, by metric.",
            "metric",
            lambda: {
                committed: float(max(0, groups.offset_count - samples_max)),
                ends: float(max(0, sum(1 for _ in high_watermarks()) - samples_max)),
            },
        )
