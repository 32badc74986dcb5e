"""The keys of ``server.properties`` whose values are used as they stand.

Each is declared here and nowhere else. The attribute is the key, with underscores for dots, and of
an instance its value. Keys whose values are converted (addresses, roles) are in
``metadata.config_keys``. A key with the scope ``cluster`` may get another value while the node
runs: ``runtime.config.in_force`` has it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from metadata.config_key import Scope
from metadata.setting import Setting, boolean, double, integer, long, string, strings
from metadata.share_settings import ShareSettings

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _threads(default: int, instead: str) -> Setting[int]:
    return integer(
        default, f"Accepted, but {instead}", minimum=1, scope=Scope.CLUSTER, is_inert=True
    )


class NodeSettings(ShareSettings):
    """The configured values of a node, or the defaults."""

    def _take(self, raw: Mapping[str, str]) -> None:
        """``raw``: the configured values, by key, checked. Raises ApiError INVALID_CONFIG."""
        for name, setting in SETTINGS.items():
            self.__dict__[name] = setting.read(raw)

    # The node's identity.
    node_id = integer(
        None,
        "The number of this node, unique in the cluster.",
        minimum=0,
    )
    cluster_id = string(
        "",
        "The cluster to which this node belongs. If it is set, a directory of another cluster is "
        "refused. Otherwise the directory's own id counts.",
    )
    logging_format = string(
        "text",
        "How a node writes its log to standard error: text for people, or json: one object per "
        "line with time (UTC), level, logger, node and message.",
        allowed=("text", "json"),
    )
    audit_log_file = string(
        "",
        "A file for the requests that the authorizer denied, for failed logins and handshakes, and "
        "for refused certificates: one object of JSON per line. If empty, denials and certificates "
        "are in the node's log, from the logger stele.audit, and it has the others in words.",
    )
    # Delegation tokens. delegation.token.secret.key switches them on.
    delegation_token_max_lifetime_ms = long(
        604800000,
        "The longest life of a delegation token, with all its renewals.",
        minimum=1,
    )
    delegation_token_expiry_time_ms = long(
        86400000,
        "How long a delegation token is valid before it must be renewed.",
        minimum=1,
    )
    delegation_token_expiry_check_interval_ms = long(
        3600000,
        "How often the active controller removes delegation tokens that have expired. Nobody can "
        "log in by them before that, either.",
        minimum=1,
    )
    # Connections and requests.
    socket_request_max_bytes = integer(
        104857600,
        "The largest request in bytes. A connection that sends a larger one is closed.",
        minimum=1,
    )
    queued_max_requests = integer(
        500,
        "How many requests of one connection may wait for their answers before the broker stops "
        "reading from it.",
        minimum=1,
    )
    queued_max_request_bytes = long(
        268435456,
        "How many bytes the requests and answers of all connections may use together. Above it "
        "only connections that use little are read. -1: no limit, which is Kafka's default.",
        minimum=-1,
    )
    connections_max_idle_ms = long(
        600000,
        "How long a connection may be silent before it is closed. -1: for ever.",
        minimum=-1,
    )
    fetch_max_bytes = integer(
        57671680,
        "The most bytes of one answer to a client's fetch.",
        minimum=1024,
    )
    max_request_partition_size_limit = integer(
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        minimum=1,
    )
    # The quorum.
    controller_quorum_election_timeout_ms = integer(
        1000,
        "How long a candidate waits for votes, and a voter without a leader for a leader.",
        minimum=1,
    )
    controller_quorum_fetch_timeout_ms = integer(
        2000,
        "How long a voter waits for an answer of the leader before it begins an election, and a "
        "leader for fetches of a majority before it resigns.",
        minimum=1,
    )
    controller_quorum_election_backoff_max_ms = integer(
        1000,
        "The longest random pause after an election without a winner.",
        minimum=0,
    )
    controller_quorum_request_timeout_ms = integer(
        2000,
        "How long a node waits for an answer of another node of the control plane.",
        minimum=1,
    )
    metadata_log_max_record_bytes_between_snapshots = long(
        20971520,
        "After how many bytes of new metadata records a snapshot is written.",
        minimum=1,
    )
    metadata_log_max_snapshot_interval_ms = long(
        3600000,
        "After how long a snapshot is written if there are new records. 0: never by time.",
        minimum=0,
    )
    # Brokers and controllers.
    broker_heartbeat_interval_ms = integer(
        500,
        "How often a broker sends a heartbeat to the controller.",
        minimum=1,
    )
    broker_session_timeout_ms = integer(
        3000,
        "How long a silent broker counts as alive. The end of its process is noticed at once.",
        minimum=1,
    )
    initial_broker_registration_timeout_ms = integer(
        60000,
        "How long a broker repeats its registration while another process has its id. Then it "
        "stops.",
        minimum=1,
    )
    controlled_shutdown_enable = boolean(
        True,
        "Whether a broker moves its leaders elsewhere before it stops.",
    )
    auto_leader_rebalance_enable = boolean(
        True,
        "Whether leadership returns to the preferred (first) replicas by itself.",
    )
    leader_imbalance_check_interval_seconds = long(
        300,
        "How often the controller looks for partitions whose leader is not the preferred replica.",
        minimum=1,
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "The share of a broker's preferred partitions, in percent, that other brokers may lead. "
        "Above it, the broker gets their leadership back.",
        minimum=0,
        maximum=100,
    )
    # Topics.
    auto_create_topics_enable = boolean(
        True,
        "Whether a topic is created when a client asks for its metadata and it does not exist.",
    )
    # Consumer groups and their offsets.
    offsets_topic_num_partitions = integer(
        50,
        "The number of partitions of __consumer_offsets, for its creation.",
        minimum=1,
    )
    offsets_topic_replication_factor = integer(
        3,
        "The replication factor of __consumer_offsets, for its creation. Where it is not set, it "
        "is at most the number of registered brokers. Where it is set and fewer brokers are "
        "registered, the topic is not created, and there are no groups.",
        minimum=1,
        maximum=32767,
    )
    offsets_topic_segment_bytes = integer(
        104857600,
        "The segment size of __consumer_offsets, for its creation.",
        minimum=1,
    )
    offsets_commit_timeout_ms = integer(
        5000,
        "How long a commit, or a change of a group, waits for the in-sync replicas.",
        minimum=1,
    )
    offset_metadata_max_bytes = integer(
        4096,
        "The longest metadata of a committed offset, in UTF-16 units, as Kafka counts them.",
    )
    offsets_retention_minutes = integer(
        10080,
        "How long the offsets of a group are kept after its last member has left, or after the "
        "commit if it never had any.",
        minimum=1,
    )
    offsets_retention_check_interval_ms = long(
        600000,
        "How often expired offsets are removed.",
        minimum=1,
    )
    group_initial_rebalance_delay_ms = integer(
        3000,
        "How long an empty group waits for more members before its first rebalance ends.",
        minimum=0,
    )
    group_min_session_timeout_ms = integer(
        6000,
        "The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms = integer(
        1800000,
        "The longest session timeout that a member may ask for.",
    )
    group_max_size = integer(
        2147483647,
        "The most members of a group.",
        minimum=1,
    )
    group_consumer_max_size = integer(
        2147483647,
        "The most members of a group of the consumer protocol.",
        minimum=1,
    )
    group_consumer_assignors = strings(
        "uniform,range",
        "The assignors that members of the consumer protocol may ask for. The first one is used "
        "where no member asks for any.",
        allowed=("uniform", "range"),
        pattern=(".+", "at least one assignor"),
    )
    group_consumer_migration_policy = string(
        "bidirectional",
        "Whether a group that has members changes its group protocol: from classic to consumer "
        "when the first member of the consumer protocol joins (upgrade), from consumer to classic "
        "when the last one leaves (downgrade), both, or neither.",
        allowed=("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_session_timeout_ms = integer(
        45000,
        "How long a member of a group of the consumer protocol may be silent before it is removed.",
        minimum=1,
    )
    group_consumer_min_session_timeout_ms = integer(
        45000,
        "The shortest consumer.session.timeout.ms of a group.",
        minimum=1,
    )
    group_consumer_max_session_timeout_ms = integer(
        60000,
        "The longest consumer.session.timeout.ms of a group.",
        minimum=1,
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000,
        "The heartbeat interval that members of the consumer protocol get.",
        minimum=1,
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000,
        "The shortest consumer.heartbeat.interval.ms of a group.",
        minimum=1,
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15000,
        "The longest consumer.heartbeat.interval.ms of a group.",
        minimum=1,
    )
    group_consumer_assignment_interval_ms = integer(
        1000,
        "How long after a target assignment of a group of the consumer protocol the next one is "
        "made, at the earliest.",
        minimum=0,
    )
    group_consumer_min_assignment_interval_ms = integer(
        0,
        "The shortest consumer.assignment.interval.ms of a group.",
        minimum=0,
    )
    group_consumer_max_assignment_interval_ms = integer(
        15000,
        "The longest consumer.assignment.interval.ms of a group.",
        minimum=0,
    )
    # Transactions.
    transaction_state_log_num_partitions = integer(
        50,
        "The number of partitions of __transaction_state, for its creation.",
        minimum=1,
    )
    transaction_state_log_replication_factor = integer(
        3,
        "The replication factor of __transaction_state, for its creation. Where it is not set, it "
        "is at most the number of registered brokers. Where it is set and fewer brokers are "
        "registered, the topic is not created, and there are no transactions.",
        minimum=1,
        maximum=32767,
    )
    transaction_state_log_min_isr = integer(
        2,
        "The min.insync.replicas of __transaction_state, for its creation. A value above the "
        "number of replicas asks for all replicas.",
        minimum=1,
    )
    transaction_state_log_segment_bytes = integer(
        104857600,
        "The segment size of __transaction_state, for its creation.",
        minimum=1,
    )
    transaction_max_timeout_ms = integer(
        900000,
        "The longest time-out of a transaction that a producer may ask for.",
        minimum=1,
    )
    transactional_id_expiration_ms = integer(
        604800000,
        "How long an unused transactional id is remembered.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        3600000,
        "How often expired transactional ids are removed.",
        minimum=1,
    )
    transaction_two_phase_commit_enable = boolean(
        False,
        "Whether producers may take part in two-phase commits (KIP-939). The transactions of such "
        "a producer have no time-out.",
    )
    transaction_two_phase_commit_max_ms = long(
        -1,
        "How long a transaction of a two-phase commit may stay open before it is aborted all the "
        "same, which breaks the promise of a prepared transaction (not a key of Kafka). -1: for "
        "ever.",
        minimum=-1,
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Accepted, but brokers always ask the coordinator before they accept records of a "
        "transaction.",
        scope=Scope.CLUSTER,
        is_inert=True,
    )
    # Replication.
    replica_lag_time_max_ms = long(
        30000,
        "How long a follower may be behind the leader's log end offset before it leaves the ISR.",
        minimum=1,
    )
    replica_fetch_max_bytes = integer(
        1048576,
        "The most bytes of one partition in one fetch of a follower.",
        minimum=0,
    )
    replica_fetch_response_max_bytes = integer(
        10485760,
        "The most bytes in one fetch of a follower.",
        minimum=0,
    )
    replica_fetch_wait_max_ms = integer(
        500,
        "How long a follower's fetch waits at the leader for new records.",
        minimum=0,
    )
    replica_fetch_min_bytes = integer(
        1,
        "How many bytes a follower's fetch waits for.",
        minimum=0,
    )
    replica_socket_timeout_ms = integer(
        30000,
        "How long a follower waits for a leader's answer before it connects again.",
        minimum=1,
    )
    replica_fetch_backoff_ms = integer(
        1000,
        "How long a follower leaves a partition out of its fetches after an error.",
        minimum=0,
    )
    replica_selector_class = string(
        "",
        "Which replica a leader names to consumers that say where they are (client.rack, KIP-392): "
        "with the class name of Kafka's RackAwareReplicaSelector one with their broker.rack. If "
        "empty, or with that of the LeaderSelector, none. Set it alike on all brokers. It makes "
        "followers hear at once of committed records, by more fetches.",
        allowed=("", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    replica_high_watermark_checkpoint_interval_ms = integer(
        5000,
        "How often high watermarks and recovery points are written to disk. After a crash "
        "everything above them is checked.",
        minimum=1,
    )
    # Metrics.
    metrics_offsets_max = integer(
        1000,
        "The most committed offsets of groups, and likewise the most high watermarks, that "
        "/metrics shows. Each is a time series of its own.",
        minimum=0,
    )
    # Metrics of clients (KIP-714). Kafka has a class of metric.reporters in the place of the
    # receiver.
    telemetry_receiver = strings(
        "",
        "Where the metrics go that clients push: prometheus, for /metrics of this node. If this "
        "and telemetry.otlp.endpoint are empty, clients are not asked for any. Subscriptions say "
        "which clients push which metrics.",
        allowed=("prometheus",),
    )
    telemetry_max_bytes = integer(
        1048576,
        "The largest push of metrics, in bytes, before and after decompression.",
        minimum=1,
    )
    telemetry_series_max = integer(
        2000,
        "The most values of clients' metrics that /metrics shows, of one client a quarter of that. "
        "Each is a time series of its own. Clients that were silent longest go first.",
        minimum=0,
    )
    telemetry_otlp_security_protocol = string(
        "PLAINTEXT",
        "How brokers speak with the collector at telemetry.otlp.endpoint. With SSL the collector "
        "proves its name by a certificate.",
        allowed=("PLAINTEXT", "SSL"),
    )
    telemetry_otlp_ssl_truststore_location = string(
        "",
        "The PEM or PKCS12 file of the authorities that may have issued the certificate of the "
        "collector at telemetry.otlp.endpoint. If empty, those of the system.",
    )
    # Traces of requests, which Kafka has not.
    telemetry_traces_sample = double(
        0.0,
        "The part of the clients' requests that are traced by OpenTelemetry, from 0 (none) to 1. "
        "It needs the extra otel.",
        minimum=0.0,
        maximum=1.0,
    )
    telemetry_traces_endpoint = string(
        "",
        "Where traces are sent by OTLP over HTTP, for example http://collector:4318. Empty: as "
        "OTEL_EXPORTER_OTLP_ENDPOINT says, or http://localhost:4318.",
    )
    telemetry_traces_header = string(
        "",
        "The header in which producers tell the trace of a request, in W3C's format, for example "
        "traceparent. It is read from the first record of a Produce request, unless the record is "
        "compressed. Such a request is traced if its producer traces it. Empty: no header is read.",
    )
    # The log.
    log_retention_check_interval_ms = long(
        300000,
        "How often segments are checked against the retention settings.",
        minimum=1,
    )
    log_cleaner_enable = boolean(
        True,
        "Whether topics with cleanup.policy=compact are compacted on this broker.",
    )
    log_cleaner_backoff_ms = long(
        15000,
        "How long the cleaner waits when no log needs to be compacted.",
        minimum=0,
        scope=Scope.CLUSTER,
    )
    log_cleaner_dedupe_buffer_size = long(
        134217728,
        "The most memory for the keys of one compaction, 24 bytes for each. A log with more keys "
        "takes several rounds. The memory is in use only during a compaction.",
        minimum=1048576,
        scope=Scope.CLUSTER,
    )
    log_cleaner_io_buffer_load_factor = double(
        0.9,
        "How full log.cleaner.dedupe.buffer.size may become. A fuller one is slower.",
        minimum=0.1,
        maximum=1,
        scope=Scope.CLUSTER,
    )
    log_cleaner_io_buffer_size = integer(
        524288,
        "The memory to read and write segments. Accepted, but a compaction uses 1 MiB for each.",
        minimum=0,
        scope=Scope.CLUSTER,
        is_inert=True,
    )
    log_cleaner_io_max_bytes_per_second = double(
        sys.float_info.max,
        "The most bytes per second that compaction reads and writes.",
        minimum=1,
        scope=Scope.CLUSTER,
    )
    log_cleaner_threads = integer(
        1,
        "Accepted, but one process compacts the logs of a broker, one after the other.",
        minimum=0,
        scope=Scope.CLUSTER,
        is_inert=True,
    )
    log_flush_scheduler_interval_ms = long(
        1000,
        "How often the logs whose flush.messages is not 1 are checked for records older than "
        "flush.ms that are not on disk (Kafka's default: never).",
        minimum=1,
    )
    log_sync_method = string(
        "kernel",
        "What carries out the syncs of a few files: the kernel, where it can, or a helper process. "
        "With cgroups v1, a limit of the node's writes holds for its helper process only.",
        allowed=("kernel", "process"),
    )
    producer_id_expiration_ms = integer(
        86400000,
        "How long an idle idempotent producer is remembered.",
        minimum=1,
        scope=Scope.CLUSTER,
    )
    producer_ids_max = integer(
        100000,
        "The most producers that a partition remembers (Kafka: no limit). Batches of a further one "
        "are refused with NOT_ENOUGH_REPLICAS, until others were idle for "
        "producer.id.expiration.ms.",
        minimum=1,
        scope=Scope.CLUSTER,
    )
    # Kafka's threads. A broker works on one event loop, with helper processes for what takes long.
    num_io_threads = _threads(8, "one event loop handles all requests.")
    num_network_threads = _threads(3, "one event loop serves all connections.")
    num_replica_fetchers = _threads(1, "a broker has one connection to each leader.")
    num_recovery_threads_per_data_dir = _threads(2, "a broker recovers one log after the other.")
    background_threads = _threads(10, "there are no pools of threads.")


SETTINGS: Mapping[str, Setting[int] | Setting[bool] | Setting[float] | Setting[str]] = {
    name: each
    for part in (NodeSettings, ShareSettings)
    for name, each in vars(part).items()
    if isinstance(each, Setting)
}
"""By attribute."""
