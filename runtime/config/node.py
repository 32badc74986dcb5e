"""A node's configuration: server.properties, environment and overrides → ``NodeConfig``.

Nothing here reads files or the environment: texts and mappings come in, a checked value or a
``ConfigError`` with one line per fault comes out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata.config_keys import NODE_KEYS, TOPIC_KEYS, ConfigKey, Value, unknown
from metadata.connection_settings import (
    ConnectionSettings,
    listener_limit,
    read_connection_settings,
)
from metadata.node_settings import RACK_AWARE_SELECTOR, NodeSettings
from runtime.config import unbuilt_keys
from runtime.config.access import access_policy, node_faults
from runtime.config.addresses import CONTROLLER, NamedAddress, parse_address, parse_listener
from runtime.config.controller_listeners import (
    WILDCARDS,
    ControllerListeners,
    ControllerListenersReader,
)
from runtime.config.security import NodeSecurity, SecurityReader, listener_key
from security.authorizer.decision import Policy
from stele.addresses import Address
from stele.errors import ApiError, SteleError
from stele.properties import parse_properties

logger = logging.getLogger(__name__)

ENVIRONMENT_PREFIX = "STELE_"
CLIENT_VARIABLES = frozenset(
    f"STELE_{name}"
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "METRICS_SERVERS", "NATIVE", "PROFILE")
)
"""Set for commands and for the reader of records; a node that is started in the same shell passes
them by."""


class ConfigError(SteleError):
    """The node cannot start with this configuration; ``str()`` says what to change."""


class Voter(NamedTuple):
    id: int
    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class NodeConfig(NodeSettings):
    """A node's checked configuration.

    Keys that are used as they stand are ``NodeSettings``. Those that are defaults of topics are not
    here: ``metadata.effective`` resolves them from ``raw``.
    """

    is_broker: bool
    is_controller: bool
    rack: str | None
    log_dirs: tuple[str, ...]  # absolute
    metadata_log_dir: str
    voters: tuple[Voter, ...]  # by id; the first ones
    bootstrap_controllers: tuple[Address, ...]

    # Broker only; empty on a controller. All four hold the same names in the same order.
    listeners: tuple[NamedAddress, ...]
    advertised_listeners: tuple[NamedAddress, ...]
    grpc_listeners: tuple[NamedAddress, ...]
    grpc_advertised_listeners: tuple[NamedAddress, ...]
    inter_broker_listener_name: str  # "" only where there are no listeners and none is named

    security: NodeSecurity

    # In the order of controller.listener.names; empty on a broker. Where it is bound, and where the
    # other nodes find it.
    controller_listeners: tuple[NamedAddress, ...]
    controller_advertised_listeners: tuple[NamedAddress, ...]
    metrics_listener: Address | None
    telemetry_otlp_endpoint: Address | None

    access_policy: Policy | None  # None: there is no authorizer

    # As server.properties has them. Other values may be in force while the node runs.
    connections: ConnectionSettings

    # What was set, by key, as text: the static layer under the dynamic configuration.
    raw: Mapping[str, str] = field(repr=False)  # it has secrets

    def __post_init__(self) -> None:
        self._take(self.raw)

    @property
    def selects_replicas_by_rack(self) -> bool:
        """Whether a leader sends consumers to a replica with their rack."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def roles(self) -> tuple[str, ...]:
        return ("broker",) * self.is_broker + ("controller",) * self.is_controller


_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def load(
    properties: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> NodeConfig:
    """The configuration from server.properties' text, ``STELE_*`` variables and ``key=value``.

    Later ones win, in this order. Unknown keys, and Kafka's that are not built, are logged and left
    out, but for those that promise safety: they are faults, and so is an unknown key among
    ``overrides``, which is a typing error. Raises ConfigError.
    """
    settings = parse_properties(properties)
    settings.update(from_environment(environment or {}))
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"{override!r} is not of the form key=value")
        check_key(name.strip())
        settings[name.strip()] = value.strip()
    return from_settings(settings)


def check_key(name: str) -> None:
    """Check that a setting exists. Raises ConfigError with the nearest name."""
    if name not in NODE_KEYS and not listener_limit(name) and not unbuilt_keys.is_known(name):
        raise ConfigError(_explain_unknown(name))


def _explain_unknown(name: str) -> str:
    if name in TOPIC_KEYS:
        return f"{name} is a config of topics; its default is set by {TOPIC_KEYS[name].synonym}"
    return unbuilt_keys.no_effect(name) or unknown(name, NODE_KEYS, "configuration")


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings from variables such as ``STELE_LOG_RETENTION_HOURS`` (log.retention.hours)."""
    by_variable = {name.upper().replace(".", "_"): name for name in NODE_KEYS}
    settings = {}
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in CLIENT_VARIABLES:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        # An unknown one keeps the name it would have, and is reported with the others.
        key = by_variable.get(name, name.lower().replace("_", "."))
        settings[key] = environment[variable]
    return settings


def from_settings(settings: Mapping[str, str]) -> NodeConfig:
    """The configuration from settings by key. Raises ConfigError with all faults found."""
    return _Reader(settings).read()


class _Reader:
    """Turns settings into a NodeConfig and collects their faults."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._faults: list[str] = []
        self._raw: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        for name in sorted(settings):
            if (limit := listener_limit(name)) is not None:
                self._raw[limit.key.name] = settings[name].strip()
            elif name in NODE_KEYS or listener_key(name) is not None:
                self._raw[name] = settings[name].strip()
            elif (refusal := unbuilt_keys.refusal(name, settings[name])) is not None:
                self._faults.append(refusal)
            else:
                logger.warning("ignored: %s", _explain_unknown(name))
        for name, key in NODE_KEYS.items():
            self._values[name] = self._parsed(name, key.default)

    def _parsed(self, name: str, default: str | None) -> Value:
        text = self._raw.get(name, default)
        if text is None:
            self._faults.append(f"{name} must be set")
            return ""
        if name not in self._raw and text == "":
            return () if NODE_KEYS[name].type.value == "LIST" else ""
        try:
            return NODE_KEYS[name].parse(text)
        except ApiError as error:
            self._faults.append(error.message)
            return ""

    # ---------------------------------------------------------------- typed look-ups

    def _text(self, name: str) -> str:
        value = self._values[name]
        return value if isinstance(value, str) else ""

    def _items(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        return value if isinstance(value, tuple) else ()

    def _number(self, name: str) -> int:
        value = self._values[name]
        return value if isinstance(value, int) else 0

    def _value_of(self, key: ConfigKey) -> Value:
        return self._values[key.name]

    # ---------------------------------------------------------------- the whole

    def read(self) -> NodeConfig:
        roles = self._items("process.roles")
        is_broker, is_controller = "broker" in roles, "controller" in roles
        if not roles:
            self._faults.append("process.roles must name broker, controller or both")
        listeners, advertised = self._pair("listeners", "advertised.listeners", is_broker)
        grpc, grpc_advertised = self._pair("grpc.listeners", "grpc.advertised.listeners", is_broker)
        self._check_same_names(listeners, grpc)
        controller_names = self._controller_names()
        reader = SecurityReader(self._faults, self._raw)
        inter_broker = self._inter_broker_listener(listeners, reader)
        security = reader.read(
            [item.name for item in listeners],
            controller_names,
            inter_broker,
        )
        log_dirs = self._directories()
        voters = self._voters()
        controller = ControllerListeners((), ())
        if is_controller:
            controller = self._controller_listeners(controller_names, voters)
        fields: dict[str, object] = {
            "is_broker": is_broker,
            "is_controller": is_controller,
            "rack": self._text("broker.rack") or None,
            "log_dirs": log_dirs,
            "metadata_log_dir": self._text("metadata.log.dir") or next(iter(log_dirs), ""),
            "voters": voters,
            "bootstrap_controllers": self._bootstrap_controllers(),
            "listeners": listeners,
            "advertised_listeners": advertised,
            "grpc_listeners": grpc,
            "grpc_advertised_listeners": grpc_advertised,
            "inter_broker_listener_name": inter_broker,
            "security": security,
            "controller_listeners": controller.bound,
            "controller_advertised_listeners": controller.advertised,
            "metrics_listener": self._address("metrics.listener"),
            "telemetry_otlp_endpoint": self._address("telemetry.otlp.endpoint"),
            "access_policy": self._access_policy(security, inter_broker),
            "connections": self._connections(listeners, controller_names),
            "raw": self._raw,
        }
        self._check_relations(is_controller, voters)
        if self._faults:
            raise ConfigError("; ".join(self._faults))
        return NodeConfig(**fields)  # type: ignore[arg-type]

    def _access_policy(self, security: NodeSecurity, inter_broker: str) -> Policy | None:
        policy = access_policy(self._raw, self._values.__getitem__, self._faults)
        if policy is not None:
            self._faults.extend(node_faults(policy, security, inter_broker))
        return policy

    def _check_relations(self, is_controller: bool, voters: tuple[Voter, ...]) -> None:
        session, interval = "broker.session.timeout.ms", "broker.heartbeat.interval.ms"
        if self._number(session) <= self._number(interval):
            self._faults.append(f"{session} must be larger than {interval}")
        fetch, wait = "replica.lag.time.max.ms", "replica.fetch.wait.max.ms"
        if self._number(fetch) <= self._number(wait):
            self._faults.append(
                f"{fetch} must be larger than {wait}, or idle followers would leave the ISR"
            )
        answer = "replica.socket.timeout.ms"
        if self._number(answer) < self._number(wait):
            self._faults.append(f"{answer} must be at least {wait}, or no idle leader could answer")
        if voters:
            node_id = self._number("node.id")
            is_voter = node_id in {voter.id for voter in voters}
            if is_controller and not is_voter:
                self._faults.append(
                    f"node.id {node_id} is a controller but not in controller.quorum.voters; one "
                    "that joins later is given controller.quorum.bootstrap.servers in its place"
                )
            if is_voter and not is_controller:
                self._faults.append(
                    f"node.id {node_id} is in controller.quorum.voters: give it the role "
                    "controller or another node.id"
                )

    def _connections(
        self, listeners: tuple[NamedAddress, ...], controller_names: Sequence[str]
    ) -> ConnectionSettings | None:
        """None if there are faults."""
        names = [*(listener.name for listener in listeners), *controller_names]
        known = {name.lower() for name in names}
        limits = []
        for key, text in self._raw.items():
            limit = listener_limit(key)
            if limit is not None and limit.listener not in known:
                self._faults.append(f"{key}: there is no such listener")
            elif limit is not None:
                limits.append((limit, text))
        try:
            return read_connection_settings(
                self._value_of,
                limits,
                names,
            )
        except ApiError as error:
            self._faults.append(error.message)
            return None

    def _directories(self) -> tuple[str, ...]:
        directories = self._items("log.dirs")
        if not directories:
            self._faults.append("log.dirs must name a directory")
        if len(set(directories)) < len(directories):
            self._faults.append("log.dirs names a directory twice")
        for directory in (*directories, self._text("metadata.log.dir")):
            if directory and not directory.startswith("/"):
                self._faults.append(f"{directory}: a directory is given by its absolute path")
        return directories

    # ---------------------------------------------------------------- addresses

    def _voters(self) -> tuple[Voter, ...]:
        voters: dict[int, Voter] = {}
        for item in self._items("controller.quorum.voters"):
            id_text, at, rest = item.partition("@")
            address = parse_address(rest)
            if not at or not id_text.isdecimal() or address is None or not address.host:
                self._faults.append(f"controller.quorum.voters: {item!r} is not id@host:port")
                continue
            if int(id_text) in voters:
                self._faults.append(f"controller.quorum.voters names {id_text} twice")
            voters[int(id_text)] = Voter(int(id_text), address.host, address.port)
        keys = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
        if not any(self._items(key) for key in keys):
            self._faults.append(
                "controller.quorum.bootstrap.servers (host:port) or controller.quorum.voters "
                "(id@host:port) must name a controller"
            )
        return tuple(voters[voter_id] for voter_id in sorted(voters))

    def _bootstrap_controllers(self) -> tuple[Address, ...]:
        name = "controller.quorum.bootstrap.servers"
        found = []
        for item in self._items(name):
            address = parse_address(item)
            if address is None or not address.host or not address.port:
                self._faults.append(f"{name}: {item!r} is not host:port")
                continue
            found.append(address)
        return tuple(dict.fromkeys(found))

    def _controller_names(self) -> tuple[str, ...]:
        key = "controller.listener.names"
        names = self._items(key)
        if not names:
            self._faults.append(f"{key} must name a listener")
            return (CONTROLLER,)
        if len(set(names)) < len(names):
            self._faults.append(f"{key} names a listener twice")
        for name in names:
            if not _LISTENER_NAME.fullmatch(name):
                self._faults.append(f"{key}: {name!r} must be of letters, digits, _, . and -")
        return tuple(dict.fromkeys(names))

    def _controller_listeners(
        self, names: Sequence[str], voters: tuple[Voter, ...]
    ) -> ControllerListeners:
        node_id = self._number("node.id")
        entries = [Address(each.host, each.port) for each in voters if each.id == node_id]
        return ControllerListenersReader(self._faults, names).read(
            self._items("controller.listener"),
            self._items("controller.advertised.listener"),
            entries[0] if entries else None,
        )

    def _address(self, name: str) -> Address | None:
        text = self._text(name)
        if not text:
            return None
        address = parse_address(text)
        if address is None:
            self._faults.append(f"{name}={text}: it must be host:port")
            return None
        return address._replace(host=address.host or "127.0.0.1")

    def _named(self, name: str) -> tuple[NamedAddress, ...]:
        found: dict[str, NamedAddress] = {}
        for item in self._items(name):
            listener = parse_listener(item)
            if listener is None:
                self._faults.append(f"{name}: {item!r} is not NAME://host:port")
                continue
            if listener.name in found:
                self._faults.append(f"{name} names {listener.name} twice")
            found[listener.name] = listener._replace(host=listener.host or "127.0.0.1")
        return tuple(found.values())

    def _pair(
        self, bound_key: str, advertised_key: str, is_broker: bool
    ) -> tuple[tuple[NamedAddress, ...], tuple[NamedAddress, ...]]:
        """For each name of a listener: the address that is bound and the one that is advertised."""
        if not is_broker:
            return (), ()
        bound = self._named(bound_key)
        given = {item.name: item for item in self._named(advertised_key)}
        if not bound:
            self._faults.append(f"{bound_key} must name a listener: NAME://host:port")
        for name in sorted(given.keys() - {item.name for item in bound}):
            self._faults.append(f"{advertised_key} names {name}, which {bound_key} does not")
        advertised = tuple(given.get(item.name, item) for item in bound)
        for item in advertised:
            if item.host in WILDCARDS:
                self._faults.append(
                    f"{item.name} would be advertised as {item.host}, where no client can connect: "
                    f"set {advertised_key}={item.name}://<host name or address>:{item.port}"
                )
        return bound, advertised

    def _check_same_names(
        self, listeners: tuple[NamedAddress, ...], grpc: tuple[NamedAddress, ...]
    ) -> None:
        names, grpc_names = {item.name for item in listeners}, {item.name for item in grpc}
        for name in sorted(names - grpc_names):
            self._faults.append(
                f"grpc.listeners lacks {name}: its names must be those of listeners, so that a "
                "client learns the gRPC address of the network it came from"
            )
        for name in sorted(grpc_names - names):
            self._faults.append(f"grpc.listeners names {name}, which listeners does not")

    def _inter_broker_listener(
        self, listeners: tuple[NamedAddress, ...], security: SecurityReader
    ) -> str:
        names = [item.name for item in listeners]
        name = security.first_of_protocol(names) or self._text("inter.broker.listener.name")
        if not name:
            return names[0] if names else ""
        if names and name not in names:
            self._faults.append(
                f"inter.broker.listener.name={name}: listeners has only " + ", ".join(names)
            )
        return name
