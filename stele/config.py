"""The options of producer, consumer and admin client: names, defaults and checks.

Names are Kafka's with underscores for dots. A field whose default is not Kafka's gives the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from stele.errors import ApiError, ConfigError
from stele.ids import TopicPartition
from stele.option_types import check_names, check_types
from stele.security.client_security import ClientSecurity
from stele.security.options import SecurityConfig, SecurityOptions
from stele.world import Clock, Connector, Rng

Acks = Literal["all", 0, 1, -1, "0", "1", "-1"]
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest", "none"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
GroupProtocol = Literal["classic", "consumer"]
OnWait = Callable[[str], None]
OnTruncation = Callable[[TopicPartition, int, int], None]
"""Takes the partition, the offset of the next record before, and the offset up to which the log is
still the one that was read."""

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
OnAcknowledged = Callable[[TopicPartition, Sequence[int], ApiError | None], None]
"""Takes the partition, the offsets that were acknowledged, and the error if they do not count."""

STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
"""Ways in which a group's leader shares partitions between its members."""

log = logging.getLogger("stele.client")

MAX_MESSAGE_BYTES = 1024 * 1024


def _ignore_acknowledged(
    partition: TopicPartition, offsets: Sequence[int], error: ApiError | None
) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ClientWorld:
    """Everything that a client needs from outside. ``real_world()`` makes the real one."""

    clock: Clock
    connector: Connector
    rng: Rng


def real_world(security: ClientSecurity) -> ClientWorld:
    """The machine's clock, network and randomness. ``security``: of all connections. It has no
    default: a client that forgets it would speak plaintext."""
    from stele.real import RealClock, real_connector, real_rng

    return ClientWorld(RealClock(), real_connector(security), real_rng())


def _log_wait(reason: str) -> None:
    log.warning("%s", reason)


def _ignore_truncation(partition: TopicPartition, offset: int, diverging_offset: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(SecurityConfig):
    """The options that all clients have."""

    bootstrap_servers: str = "127.0.0.1:9092"
    client_id: str = "stele"
    request_timeout_ms: int = 30_000
    """The time of one attempt of one request, without the long poll of a fetch."""
    default_api_timeout_ms: int = 60_000
    """The time of a whole call with its retries: an admin call, an offset look-up, waiting for a
    topic."""
    total_timeout_ms: int | None = None
    """The time of all such calls of one client together, from its creation on. None: each call has
    its own time."""
    retry_backoff_ms: int = 50
    """Kafka's default is 100; here a killed leader is replaced faster."""
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    enable_metrics_push: bool = True
    """Push metrics to brokers that ask for them (KIP-714). An admin client has none."""
    on_wait: OnWait = field(default=_log_wait)
    """Called with the reason, in words, why the client waits: about once a second per reason at
    most."""

    @classmethod
    def of(cls, bootstrap_servers: str, options: Mapping[str, Any]) -> Self:
        """What keyword arguments of a client say. Raises ConfigError."""
        check_names(cls, options)
        return cls(bootstrap_servers=bootstrap_servers, **options)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str):
            raise ConfigError(
                f"bootstrap_servers={self.bootstrap_servers!r} must be one text, with commas "
                "between the servers: '127.0.0.1:9092,127.0.0.1:9093'"
            )
        parse_bootstrap_servers(self.bootstrap_servers)
        check_types(self)
        self.client_security()
        _at_least(self, 1, "request_timeout_ms", "default_api_timeout_ms", "retry_backoff_ms")
        _at_least(self, 1000, "metadata_max_age_ms")
        if self.total_timeout_ms is not None:
            _at_least(self, 1, "total_timeout_ms")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError(
                f"retry_backoff_max_ms={self.retry_backoff_max_ms} must be at least "
                f"retry_backoff_ms={self.retry_backoff_ms}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The options of ``Producer``: the options of all clients, and the fields below."""

    acks: Acks = "all"
    linger_ms: float = 5
    """How long a batch that is not full waits for more records. Nothing waits while records wait
    for room in the buffer."""
    batch_size: int = 128 * 1024
    """The size of a batch in bytes before compression. Kafka's default is 16 KiB; here calls cost
    more than bytes."""
    max_request_size: int = 4 * 1024 * 1024
    compression: CompressionName = "none"
    enable_idempotence: bool | None = None
    """None: yes with ``acks="all"``, otherwise no (losing a leader would break the sequence)."""
    max_in_flight: int = 5
    """The most requests without an answer per broker. A broker remembers five batches of an
    idempotent producer."""
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    """How long ``send`` waits for buffer space, or for the topic to be known."""
    buffer_memory: int = 32 * 1024 * 1024
    transactional_id: str | None = None
    """Records are written in transactions. One producer at a time uses the id: a new one fences the
    one before, and aborts what that has not committed."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that is open for longer. At most the brokers'
    ``transaction.max.timeout.ms``."""
    transaction_two_phase_commit_enable: bool = False
    """KIP-939: transactions can be prepared, have no time-out, and are ended by whoever holds what
    ``prepare_transaction`` returned."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _one_of(self, "acks", ("all", 0, 1, -1, "0", "1", "-1"))
        _one_of(self, "compression", ("none", "gzip", "snappy", "lz4", "zstd"))
        _at_least(self, 0, "linger_ms")
        _at_least(self, 1, "batch_size", "delivery_timeout_ms", "max_block_ms", "max_in_flight")
        _at_least(self, self.batch_size, "buffer_memory", "max_request_size")
        if self.enable_idempotence and self.acks_number != -1:
            raise ConfigError(
                f"enable_idempotence needs acks='all', not acks={self.acks!r}: "
                "set acks='all' or enable_idempotence=False"
            )
        if self.idempotent and self.max_in_flight > 5:
            raise ConfigError(
                f"max_in_flight={self.max_in_flight} must be at most 5 with idempotence: "
                "a broker remembers a producer's last five batches"
            )
        self._check_transactions()

    def _check_transactions(self) -> None:
        _at_least(self, 1, "transaction_timeout_ms")
        if self.transactional_id == "":
            raise ConfigError("transactional_id='' must not be empty")
        if self.transactional_id is not None and not self.idempotent:
            raise ConfigError(
                f"transactional_id={self.transactional_id!r} needs acks='all' and idempotence: "
                "leave enable_idempotence and acks at their defaults"
            )
        if self.transaction_two_phase_commit_enable and self.transactional_id is None:
            raise ConfigError("transaction_two_phase_commit_enable needs a transactional_id")

    @property
    def acks_number(self) -> int:
        """``acks`` as the protocol has it: -1 means all in-sync replicas."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """Whether the producer is idempotent."""
        if self.enable_idempotence is None:
            return self.acks_number == -1
        return self.enable_idempotence


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of ``Consumer``: the options of all clients, and the fields below."""

    auto_offset_reset: OffsetReset = "latest"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    max_poll_records: int = 500
    prefetch_bytes: int = 16 * 1024 * 1024
    """The most bytes that are fetched and not polled yet, over all partitions. Beyond it nothing
    more is fetched. A broker sends one batch at least, however large."""
    check_crcs: bool = True
    isolation_level: IsolationLevel = "read_uncommitted"
    """With ``read_committed`` no record of a transaction is returned before the transaction is
    committed, and none of an aborted one. Later records of the partition wait as well."""
    client_rack: str = ""
    """Where this client is, in the words of the brokers' ``broker.rack``. Leaders may then send it
    to a replica nearby (KIP-392)."""
    on_truncation: OnTruncation = field(default=_ignore_truncation)
    """Called when records that were read have vanished and the position goes back, because
    ``auto_offset_reset`` is not ``none``. There is a warning in the log in any case."""
    group_id: str | None = None
    group_instance_id: str | None = None
    """The name of a static member. It has its partitions back after a restart."""
    group_protocol: GroupProtocol = "classic"
    """With ``consumer`` the coordinator assigns the partitions (KIP-848). It also decides about the
    session and the heartbeats then."""
    group_remote_assignor: str | None = None
    """The assignor of the coordinator in the consumer protocol: ``uniform`` or ``range``. None: its
    first one."""
    partition_assignment_strategy: str | Sequence[str] = ("range", "cooperative-sticky")
    """The preferred one first; a text has commas between them. Members change partitions without a
    stop if all of them are cooperative."""
    enable_auto_commit: bool = True
    """Commit what earlier polls returned: at a poll, before partitions are given up, and at the
    end. Only with a group."""
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    """A member without heartbeats for so long is removed from the group."""
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """A member whose application does not poll for so long leaves the group. It is also the time
    that members have to join a rebalance."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        _one_of(self, "auto_offset_reset", ("earliest", "latest", "none"))
        _one_of(self, "isolation_level", ("read_uncommitted", "read_committed"))
        self._check_group()
        _at_least(self, 0, "fetch_min_bytes", "fetch_max_wait_ms")
        _at_least(
            self, 1, "fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records",
            "prefetch_bytes",
        )  # fmt: skip

    def _check_group(self) -> None:
        _one_of(self, "group_protocol", ("classic", "consumer"))
        if self.group_id is not None and not self.group_id:
            raise ConfigError("group_id='' must not be empty")
        if self.group_instance_id is not None and (self.group_id is None):
            raise ConfigError("group_instance_id needs a group_id")
        if self.group_instance_id == "":
            raise ConfigError("group_instance_id='' must not be empty")
        if not self.strategies:
            raise ConfigError("partition_assignment_strategy must name one strategy at least")
        for name in self.strategies:
            if name not in STRATEGIES:
                raise ConfigError(
                    f"partition_assignment_strategy={name!r} must be one of: "
                    f"{', '.join(STRATEGIES)}"
                )
        _at_least(self, 0, "auto_commit_interval_ms")
        _at_least(self, 1, "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}"
            )

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def strategies(self) -> tuple[str, ...]:
        """The names of the assignors, the preferred one first."""
        given = self.partition_assignment_strategy
        names = given.split(",") if isinstance(given, str) else given
        return tuple(dict.fromkeys(each.strip() for each in names if each.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """The options of ``ShareConsumer``: the options of all clients, and the fields below."""

    group_id: str = ""
    """The share group. It must be given."""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    """``implicit``: the next ``poll`` or ``commit`` accepts everything that was returned before.
    ``explicit``: the application says of each record what became of it."""
    share_acquire_mode: AcquireMode = "batch_optimized"
    """``batch_optimized``: a broker gives whole batches, and the consumer keeps what exceeds
    ``max_poll_records`` for later polls. ``record_limit``: it never gives more than
    ``max_poll_records`` (KIP-1206). So records that take long are not kept from other members."""
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    """The longest wait of a broker that has no records: at most a quarter of the lock. It is 100 ms
    while this consumer has records of the broker, because an acknowledgement would wait behind
    it."""
    fetch_max_bytes: int = 50 * 1024 * 1024
    check_crcs: bool = True
    client_rack: str = ""
    """Where this client is, in the words of the brokers' ``broker.rack``."""
    max_poll_interval_ms: int = 300_000
    """A consumer that does not poll for so long leaves the group, so that others get its
    partitions."""
    lock_renewal_ms: int | None = None
    """The client renews the locks of the records that a poll has returned for so long. None:
    ``max_poll_interval_ms``. 0: it renews no lock by itself."""
    on_acknowledged: OnAcknowledged = field(default=_ignore_acknowledged)
    """Called with the result of acknowledgements: the partition, the offsets, and the error or
    None. A record whose acknowledgement has failed is delivered again, unless the answer was lost
    and the acknowledgement counts all the same."""
    on_renewed: OnAcknowledged = field(default=_ignore_acknowledged)
    """Called in the same way with the result of AcknowledgeType.RENEW."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        if not self.group_id:
            raise ConfigError("a share consumer needs a group: ShareConsumer(group_id='a-name')")
        _one_of(self, "share_acknowledgement_mode", ("implicit", "explicit"))
        _one_of(self, "share_acquire_mode", ("batch_optimized", "record_limit"))
        _at_least(self, 0, "fetch_min_bytes", "fetch_max_wait_ms")
        _at_least(self, 1, "fetch_max_bytes", "max_poll_records", "max_poll_interval_ms")
        if self.lock_renewal_ms is not None:
            _at_least(self, 0, "lock_renewal_ms")

    @property
    def renewed_s(self) -> float:
        """How long locks are renewed after a poll, in seconds."""
        if self.lock_renewal_ms is None:
            return self.max_poll_interval_ms / 1000
        return self.lock_renewal_ms / 1000

    @property
    def is_explicit(self) -> bool:
        """Whether the application acknowledges each record."""
        return self.share_acknowledgement_mode == "explicit"


class ClientOptions(SecurityOptions, total=False):
    """Keyword arguments of every client. :class:`ClientConfig` has their meanings and defaults."""

    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    total_timeout_ms: int | None
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    enable_metrics_push: bool
    on_wait: OnWait


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of ``Producer``. :class:`ProducerConfig` has their meanings and
    defaults."""

    acks: Acks
    linger_ms: float
    batch_size: int
    max_request_size: int
    compression: CompressionName
    enable_idempotence: bool | None
    max_in_flight: int
    delivery_timeout_ms: int
    max_block_ms: int
    buffer_memory: int
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of ``Consumer``. :class:`ConsumerConfig` has their meanings and
    defaults."""

    auto_offset_reset: OffsetReset
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    prefetch_bytes: int
    check_crcs: bool
    isolation_level: IsolationLevel
    client_rack: str
    on_truncation: OnTruncation
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


class ShareConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of ``ShareConsumer``. :class:`ShareConsumerConfig` has their meanings and
    defaults."""

    group_id: str
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    client_rack: str
    max_poll_interval_ms: int
    lock_renewal_ms: int | None
    on_acknowledged: OnAcknowledged
    on_renewed: OnAcknowledged


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """The (host, port) pairs of ``host:port,[::1]:port``. The ports are Kafka ports. Raises
    ConfigError."""
    servers = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"bootstrap_servers: {part.strip()!r} is not host:port "
                "(a broker's Kafka port, for example 127.0.0.1:9092)"
            )
        servers.append((host, int(port)))
    return servers


def poll_limit(max_records: int | None, max_poll_records: int) -> int:
    """The most records that a poll returns: ``max_records`` if it is given. Raises ConfigError."""
    if max_records is None:
        return max_poll_records
    if max_records < 1:
        raise ConfigError(f"max_records={max_records} must be at least 1")
    return max_records


def _at_least(config: object, least: float, *names: str) -> None:
    for name in names:
        if getattr(config, name) < least:
            raise ConfigError(f"{name}={getattr(config, name)} must be at least {least}")


def _one_of(config: object, name: str, allowed: tuple[object, ...]) -> None:
    if getattr(config, name) not in allowed:
        words = ", ".join(dict.fromkeys(str(value) for value in allowed))
        raise ConfigError(f"{name}={getattr(config, name)!r} must be one of: {words}")
