"""``stele reassign …``: move partitions to other brokers, as kafka-reassign-partitions does."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import reassignment_throttles as throttles
from cli.broker_latency import BrokerLatency
from cli.command_list import CommandList
from cli.connection import connect, no_such_topic
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout, broker_ids_of
from cli.output import CommandError, UsageError, note, print_json, print_table
from cli.reassignment_auto import AUTO, PacedMoves
from cli.reassignment_file import (
    Assignments,
    LogDirs,
    Plan,
    Replica,
    document,
    read_plan,
    read_topics,
)
from cli.reassignment_kept import KeptThrottles
from cli.reassignment_log_dirs import Directories, LogDirStatus

if TYPE_CHECKING:
    from stele.admin.descriptions import BrokerDescription, PartitionDescription
    from stele.admin.partitions import PartitionReassignment
    from stele.ids import TopicPartition
    from stele.sync import Admin

app = typer.Typer(cls=CommandList, help="Move partitions to other brokers.", no_args_is_help=True)

EXIT_NOT_THERE_YET = 1

PlanFile = Annotated[
    Path,
    typer.Option(
        "--reassignment-json-file",
        "-f",
        exists=True,
        dir_okay=False,
        help='Kafka\'s format: {"version": 1, "partitions": [{"topic", "partition", "replicas"}]}, '
        'and, if brokers are not to choose, "log_dirs".',
    ),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave the throttles of replication in force.")
]
Additional = Annotated[
    bool, typer.Option("--additional", help="Begin even while other partitions are being moved.")
]
KeepFactor = Annotated[
    bool,
    typer.Option(
        "--disallow-replication-factor-change", help="Refuse more or fewer replicas than now."
    ),
]
Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="BYTES_PER_S|auto",
        help="Limit of what each broker sends and fetches for moves; `verify` removes it. "
        "auto: waits for the end, and lets moves go as fast as producers hardly notice.",
    ),
]
MetricsServers = Annotated[
    str | None,
    typer.Option(
        "--metrics-servers",
        metavar="HOST:PORT,…",
        help="With --throttle auto: the metrics.listener of the brokers, whose latency counts.",
    ),
]
LogDirsThrottle = Annotated[
    int | None,
    typer.Option(
        "--replica-alter-log-dirs-throttle",
        min=1,
        metavar="BYTES_PER_S",
        help="Limit of what each broker copies between its directories; `verify` removes it.",
    ),
]
States = dict[tuple[str, int], "PartitionDescription"]


@app.command()
def generate(
    broker_list: Annotated[
        str, typer.Option("--broker-list", metavar="ID,ID", help="The brokers to move to.")
    ],
    topics_file: Annotated[
        Path | None,
        typer.Option(
            "--topics-to-move-json-file",
            exists=True,
            dir_okay=False,
            help='Kafka\'s format: {"version": 1, "topics": [{"topic"}]}',
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="A topic to move; may be repeated."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="Replicas of each partition (default: as now).",
        ),
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="Place replicas without regard to racks.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Print a plan that spreads topics over brokers; nothing is moved."""
    names = [*(read_topics(topics_file) if topics_file else ()), *(topic or ())]
    if not names:
        raise UsageError("which topics? Give --topics-to-move-json-file or --topic")
    ids = broker_ids_of(broker_list)
    with connect(bootstrap, timeout) as admin:
        states = _states(admin, names)
        brokers = {each.broker_id: each for each in admin.describe_cluster().brokers}
    if unknown := [each for each in ids if each not in brokers]:
        raise CommandError(f"there is no broker {unknown[0]}; there are {sorted(brokers)}")
    chosen = [brokers[each] for each in ids]
    _check_factor(states, replication_factor, ids)
    plan = _spread(states, chosen, replication_factor, racks=not disable_rack_aware)
    moving = sum(set(plan[each]) != set(states[each].replicas) for each in plan)
    note(f"stele: {moving} of {len(plan)} partitions would get other replicas")
    print(json.dumps(document(plan), indent=2))


@app.command()
def execute(
    plan_file: PlanFile,
    additional: Additional = False,
    keep_factor: KeepFactor = False,
    throttle: Throttle = None,
    metrics_servers: MetricsServers = None,
    log_dirs_throttle: LogDirsThrottle = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Begin to move partitions as a plan says; another target replaces the one before."""
    plan, log_dirs = read_plan(plan_file)
    rate, look = _throttle_of(throttle, metrics_servers)
    with connect(bootstrap, timeout) as admin:
        states = _planned_states(admin, plan)
        directories = Directories.of(admin, log_dirs)
        directories.check(log_dirs)
        active = admin.list_partition_reassignments()
        is_resumed = look is not None and _are_of(plan, active)
        if active and not additional and not is_resumed:
            raise CommandError(
                f"{len(active)} partitions are being moved already, such as {next(iter(active))}: "
                "wait until `stele reassign list` shows none, or give --additional"
            )
        settled = {each: _settled(states[each]) for each in plan}
        current = Plan(settled, directories.present(log_dirs))

        def begin() -> None:
            if log_dirs_throttle is not None:
                throttles.set_log_dirs_rate(admin, log_dirs, log_dirs_throttle)
            # Directories come first: a new replica is made in the one that is set for it.
            admin.alter_replica_log_dirs(log_dirs)
            admin.alter_partition_reassignments(
                plan, allow_replication_factor_change=not keep_factor
            )
            if rate is not None or log_dirs_throttle is not None:
                note(
                    "stele: run `stele reassign verify` until all is completed: it removes the "
                    "throttles"
                )
            _print_begun(current, Plan(plan, log_dirs), as_json=as_json)

        moving = _states(admin, {topic for topic, _ in active}) if active else {}
        limits = partial(throttles.changes, {**moving, **states}, plan)
        if throttle is not None:
            throttles.check_brokers(admin, plan)
        if rate is not None:
            admin.alter_configs(limits(rate))
        if look is None:
            begin()
            return
        kept = KeptThrottles(plan_file)
        paced = PacedMoves(admin, limits, look, time.sleep, kept, is_resumed=is_resumed)
        with paced.begun():
            begin()
            paced.follow(lambda: bool(admin.list_partition_reassignments(sorted(plan))))


def _throttle_of(
    throttle: str | None, metrics_servers: str | None
) -> tuple[int | None, Callable[[], float | None] | None]:
    """The rate, or with ``auto`` what measures the tenants' latency."""
    if throttle == AUTO:
        if not metrics_servers:
            raise UsageError(
                "--throttle auto measures the latency of producers: --metrics-servers HOST:PORT,… "
                "names the metrics.listener of the brokers"
            )
        return None, BrokerLatency(metrics_servers.split(",")).look
    if metrics_servers is not None:
        raise UsageError("--metrics-servers goes with --throttle auto")
    if throttle is None:
        return None, None
    if not throttle.isdecimal() or not int(throttle):
        raise UsageError(
            f"--throttle {throttle}: neither auto nor a number of bytes per second, 1 or more"
        )
    return int(throttle), None


def _are_of(plan: Assignments, active: Mapping[TopicPartition, PartitionReassignment]) -> bool:
    """Whether there are moves under way, and all of them are the plan's."""
    return bool(active) and all(
        plan.get((topic, partition)) == move.target_replicas
        for (topic, partition), move in active.items()
    )


def _print_begun(current: Plan, target: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({"current": document(*current), "target": document(*target)})
        return
    rows = [
        (*each, _ids(current.assignments[each]), _ids(target.assignments[each]))
        for each in target.names
    ]
    print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
    if target.log_dirs:
        print()
        print_table(
            ("TOPIC", "PARTITION", "BROKER", "FROM", "TO"),
            [
                (*place, current.log_dirs.get(place), path)
                for place, path in sorted(target.log_dirs.items())
            ],
        )
    print("\nTo go back to where it was, execute this:")
    print(json.dumps(document(*current)))


class Status(enum.StrEnum):
    """The state of a planned move."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    REDIRECTED = "moving elsewhere"
    ELSEWHERE = "not moving, and elsewhere"


@app.command()
def verify(
    plan_file: PlanFile,
    preserve_throttles: PreserveThrottles = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show the progress of a plan; the exit code is 0 when all of it is completed.

    Once nothing is being moved, throttles are removed: the brokers' and those of the plan's topics.
    If `execute --throttle auto` was killed, they are set as they were before it.
    """
    plan, log_dirs = read_plan(plan_file)
    with connect(bootstrap, timeout) as admin:
        directories = Directories.of(admin, log_dirs)
        active = admin.list_partition_reassignments(sorted(plan))
        # This question comes after the one before it, so it sees every move that was completed.
        states = _planned_states(admin, plan)
        if not preserve_throttles and not admin.list_partition_reassignments():
            kept = KeptThrottles(plan_file)
            if (before := kept.load()) is None:
                _unthrottle(admin, {topic for topic, _ in plan}, rates=True)
            else:
                kept.restore(admin, before)
                note("stele: the throttles are as before the move")
        if log_dirs and not preserve_throttles and not directories.moving(log_dirs):
            throttles.set_log_dirs_rate(admin, log_dirs, None)
    placed = {place: directories.status(place, path) for place, path in sorted(log_dirs.items())}
    found = _standings(plan, states, active)
    if as_json:
        print_json(
            [
                {**_verified(*entry, target=plan[entry[0]]), **_placed(entry[0], log_dirs, placed)}
                for entry in found
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITION", "STATUS", "REPLICAS", "TARGET", "NOT IN SYNC"),
            [
                (*each, status, _ids(state.replicas), _ids(plan[each]), _missing(state, plan[each]))
                for each, status, state in found
            ],
        )
        if placed:
            print()
            print_table(
                ("TOPIC", "PARTITION", "BROKER", "STATUS", "LOG DIR", "TARGET"),
                [
                    (*place, status, directories.standing(place).path, log_dirs[place])
                    for place, status in placed.items()
                ],
            )
    is_done = all(status is Status.COMPLETED for _, status, _ in found) and all(
        status is LogDirStatus.COMPLETED for status in placed.values()
    )
    return 0 if is_done else EXIT_NOT_THERE_YET


def _standings(
    plan: Assignments, states: States, active: Mapping[TopicPartition, PartitionReassignment]
) -> list[tuple[tuple[str, int], Status, PartitionDescription]]:
    """How far the move of each partition of a plan is."""
    found = []
    for each, wanted in sorted(plan.items()):
        state, moving = states[each], active.get(each)  # type: ignore[call-overload]
        if moving is not None and not state.adding_replicas and not state.removing_replicas:
            moving = None  # completed in between
        if moving is not None:
            arriving = moving.target_replicas == wanted
            status = Status.IN_PROGRESS if arriving else Status.REDIRECTED
        else:
            status = Status.COMPLETED if state.replicas == wanted else Status.ELSEWHERE
        found.append((each, status, state))
    return found


@app.command("list")
def list_command(
    as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER, timeout: Timeout = 30.0
) -> None:
    """List all moves that are under way."""
    with connect(bootstrap, timeout) as admin:
        active = admin.list_partition_reassignments()
        topics = {topic.name: topic for topic in admin.list_topics()} if active else {}
    rows, entries = [], []
    for each, move in active.items():
        topic = topics.get(each.topic)
        if topic is None:
            continue  # deleted in between
        isr = topic.partitions[each.partition].isr
        waiting = [replica for replica in move.target_replicas if replica not in isr]
        rows.append(
            (
                each.topic,
                each.partition,
                _ids(move.target_replicas),
                _ids(move.adding_replicas) or None,
                _ids(move.removing_replicas) or None,
                _ids(waiting) or None,
            )
        )
        entries.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "target": move.target_replicas,
                "adding": move.adding_replicas,
                "removing": move.removing_replicas,
                "not_in_sync": waiting,
            }
        )
    if as_json:
        print_json(entries)
    elif rows:
        print_table(("TOPIC", "PARTITION", "TARGET", "ADDING", "REMOVING", "NOT IN SYNC"), rows)
    else:
        print("no partition is being moved")


@app.command()
def cancel(
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--reassignment-json-file",
            "-f",
            exists=True,
            dir_okay=False,
            help="File of the moves to cancel.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel every move that is under way.")
    ] = False,
    preserve_throttles: PreserveThrottles = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Cancel moves that are under way: the partitions have their former replicas again.

    Throttles of the topics are removed, and those of the brokers once nothing is being moved.
    Moves between the directories of a broker are cancelled if a plan names them.
    """
    if (plan_file is None) != everything:
        raise UsageError("cancel what? Give either --reassignment-json-file or --all")
    plan = None if plan_file is None else read_plan(plan_file)
    named = None if plan is None else plan.names
    log_dirs = {} if plan is None else plan.log_dirs
    with connect(bootstrap, timeout) as admin:
        moving = Directories.of(admin, log_dirs).moving(log_dirs)
        admin.alter_replica_log_dirs(moving)
        active = admin.list_partition_reassignments(named)
        if active:
            admin.alter_partition_reassignments(dict.fromkeys(active))
        if not preserve_throttles:
            topics = {topic for topic, _ in (active if named is None else named)}
            _unthrottle(admin, topics, rates=not admin.list_partition_reassignments())
            throttles.set_log_dirs_rate(admin, log_dirs, None)
    if as_json:
        entries: list[dict[str, object]] = [
            {"topic": each.topic, "partition": each.partition} for each in active
        ]
        print_json(entries + [_replica(place, path) for place, path in sorted(moving.items())])
        return
    if not active and not moving:
        print("no partition is being moved" if everything else "none of these is being moved")
    for each in active:
        print(f"cancelled the move of {each}")
    for (topic, partition, broker_id), path in sorted(moving.items()):
        print(
            f"cancelled the move of {topic}-{partition} on broker {broker_id}: it stays in {path}"
        )


# ------------------------------------------------------------------------------------- helpers


def _unthrottle(admin: Admin, topics: Collection[str], *, rates: bool) -> None:
    for topic in throttles.remove(admin, topics, rates=rates):
        note(f"stele: the replication of topic {topic} is throttled no more")


def _states(admin: Admin, names: Collection[str]) -> States:
    """Every partition of these topics. Raises CommandError where there is no such topic."""
    by_name = {topic.name: topic for topic in admin.list_topics()}
    for name in names:
        if name not in by_name:
            raise no_such_topic(name, by_name)
    return {(name, state.partition): state for name in names for state in by_name[name].partitions}


def _planned_states(admin: Admin, plan: Assignments) -> States:
    states = _states(admin, sorted({topic for topic, _ in plan}))
    for topic, partition in sorted(plan):
        if (topic, partition) not in states:
            raise CommandError(f"topic {topic!r} has no partition {partition}")
    return states


def _settled(state: PartitionDescription) -> tuple[int, ...]:
    """The replicas without those that a move under way adds."""
    return tuple(each for each in state.replicas if each not in state.adding_replicas)


def _check_factor(states: States, replication_factor: int | None, ids: Sequence[int]) -> None:
    """Raises CommandError if the chosen brokers are too few."""
    for (topic, number), state in states.items():
        factor = replication_factor or len(state.replicas)
        if factor > len(ids):
            raise CommandError(
                f"{topic}-{number} has a replication factor of {factor}, and --broker-list names "
                f"{len(ids)} brokers: name more, or give --replication-factor"
            )


def _spread(
    states: States,
    brokers: Sequence[BrokerDescription],
    replication_factor: int | None,
    *,
    racks: bool,
) -> Assignments:
    """A placement by the rule for new topics."""
    import random

    from controller.placement import StripedPlacer
    from metadata.brokers import BrokerRegistration

    registrations = [
        BrokerRegistration(
            each.broker_id,
            each.broker_epoch,
            b"",
            rack=(each.rack or None) if racks else None,
            fenced=False,
        )
        for each in brokers
    ]
    plan: Assignments = {}
    for topic in sorted({topic for topic, _ in states}):
        placer = StripedPlacer(registrations, random.Random())
        for each, state in sorted((key, s) for key, s in states.items() if key[0] == topic):
            plan[each] = placer.place(replication_factor or len(_settled(state)))
    return plan


def _verified(
    each: tuple[str, int], status: Status, state: PartitionDescription, *, target: tuple[int, ...]
) -> dict[str, object]:
    return {
        "topic": each[0],
        "partition": each[1],
        "status": status,
        "replicas": state.replicas,
        "target": target,
        "not_in_sync": [replica for replica in target if replica not in state.isr],
    }


def _placed(
    each: tuple[str, int], log_dirs: LogDirs, statuses: Mapping[Replica, LogDirStatus]
) -> dict[str, object]:
    """What is said of a partition's log directories, if the plan names any."""
    replicas = [
        {**_replica(place, log_dirs[place]), "status": status}
        for place, status in statuses.items()
        if place[:2] == each
    ]
    return {"log_dirs": replicas} if replicas else {}


def _replica(place: Replica, path: str) -> dict[str, object]:
    topic, partition, broker_id = place
    return {"topic": topic, "partition": partition, "broker_id": broker_id, "log_dir": path}


def _missing(state: PartitionDescription, target: tuple[int, ...]) -> str | None:
    return _ids([replica for replica in target if replica not in state.isr]) or None


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(each) for each in ids)
