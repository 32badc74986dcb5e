"""``stele explain``: leaders, when and why they changed, what is wrong, and what mends it.

Everything but ``audit``, ``client`` and ``queue`` comes from the metadata log, and every broker has
a replica of it. So it also works while there is no active controller. Exit status 3: the object is
not healthy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.explain_audit import explain_audit
from cli.explain_client import explain_client
from cli.explain_queue import explain_queue
from cli.metadata_history import fetch_history, moment
from cli.options import DEFAULT_BOOTSTRAP_SERVER, EXIT_NOT_WELL, Bootstrap, Json, Timeout
from cli.output import CommandError, did_you_mean, print_json, print_table, say
from cli.partition_name import parsed_partition

if TYPE_CHECKING:
    from metadata.explain.partition import Change, Diagnosis
    from metadata.image import MetadataImage
    from metadata.topics import Topic

app = typer.Typer(cls=CommandList, help="Why something is as it is.", no_args_is_help=True)

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Explain the state at this time (UTC), e.g. 2026-01-31T12:00.",
    ),
]
Last = Annotated[
    int, typer.Option("--last", min=1, help="Number of changes to show, the newest ones.")
]


@app.command("partition")
def explain_partition(
    name: Annotated[
        str, typer.Argument(metavar="TOPIC-PARTITION", help="A partition, for example orders-3.")
    ],
    at: At = None,
    last: Last = 30,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show the leaders of a partition, why it changed, and what is wrong with it."""
    from metadata.explain.partition import Health, diagnose, partition_changes

    topic_name, number = parsed_partition(name)
    with connect(bootstrap, timeout) as admin:
        history = fetch_history(admin, at)
    topic = _topic(history.image, topic_name, at)
    if number >= len(topic.partitions):
        raise CommandError(
            f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, not {number}"
        )
    changes = partition_changes(history, topic, number)
    diagnosis = diagnose(history, topic, number)
    if as_json:
        print_json(
            {
                "partition": name,
                "health": diagnosis.health.name.lower(),
                "reasons": diagnosis.reasons,
                "remedies": diagnosis.remedies,
                "changes": [_change_json(each) for each in changes],
            }
        )
    else:
        state = topic.partitions[number]
        leader = "none" if state.leader < 0 else state.leader
        say(f"{name}: {diagnosis.health.value}")
        say(
            f"leader {leader} in epoch {state.leader_epoch}, replicas {_ids(state.replicas)}, "
            f"in sync {_ids(state.isr)}"
        )
        _print_diagnosis(diagnosis)
        _print_changes(changes, last)
    return 0 if diagnosis.health is Health.HEALTHY else EXIT_NOT_WELL


@app.command("topic")
def explain_topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    at: At = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show the health of each partition of a topic, and the reasons."""
    from metadata.explain.partition import Health, diagnose, partition_changes

    with connect(bootstrap, timeout) as admin:
        history = fetch_history(admin, at)
    topic = _topic(history.image, name, at)
    found = [diagnose(history, topic, number) for number in range(len(topic.partitions))]
    newest = [partition_changes(history, topic, number)[-1:] for number in range(len(found))]
    if as_json:
        print_json(
            [
                {
                    "partition": number,
                    "health": diagnosis.health.name.lower(),
                    "reasons": diagnosis.reasons,
                    "remedies": diagnosis.remedies,
                }
                for number, diagnosis in enumerate(found)
            ]
        )
    else:
        rows = []
        for number, (diagnosis, changes) in enumerate(zip(found, newest, strict=True)):
            state = topic.partitions[number]
            leader = None if state.leader < 0 else state.leader
            health = diagnosis.health.value.partition(":")[0]
            last = changes[0] if changes else None
            rows.append(
                (
                    number,
                    health,
                    leader,
                    _ids(state.isr),
                    _ids(state.replicas),
                    moment(last.time_ms) if last else None,
                    last.cause if last else None,
                )
            )
        columns = ("PARTITION", "HEALTH", "LEADER", "ISR", "REPLICAS", "SINCE (UTC)", "WHY")
        print_table(columns, rows)
        told = dict.fromkeys(
            line for each in found for line in (*each.reasons, *map(_advice, each.remedies))
        )
        for line in told:
            say(line)
    return 0 if all(each.health is Health.HEALTHY for each in found) else EXIT_NOT_WELL


@app.command("broker")
def explain_broker(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the broker.")],
    at: At = None,
    last: Last = 30,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show what happened to a broker, and which partitions depend on it."""
    from metadata.explain.broker import broker_history, dependence

    with connect(bootstrap, timeout) as admin:
        history = fetch_history(admin, at)
    registration = history.image.broker(broker_id)
    events = broker_history(history, broker_id)
    if registration is None and not events:
        known = ", ".join(str(each.broker_id) for each in history.image.sorted_brokers())
        raise CommandError(f"there is no broker {broker_id}; there are {known}")
    depends = dependence(history.image, broker_id)
    serves = registration is not None and registration.active
    if as_json:
        print_json({"broker_id": broker_id, "serves": serves, "events": events, "has": depends})
        return 0 if serves else EXIT_NOT_WELL
    state = "serves" if serves else "is not registered" if registration is None else "is fenced"
    if registration is not None and registration.in_controlled_shutdown:
        state = "shuts down"
    say(
        f"broker {broker_id} {state}: leads {len(depends.leads)} partitions, in sync in "
        f"{len(depends.in_sync)}, behind in {len(depends.behind)}"
    )
    if depends.waiting:
        say(f"offline until it, or another in-sync replica, is back: {_names(depends.waiting)}")
    if depends.behind:
        say(f"behind: {_names(depends.behind)}")
    print_table(
        ("OFFSET", "TIME (UTC)", "WHAT"),
        [(each.offset, moment(each.time_ms), each.what) for each in events[-last:]],
    )
    return 0 if serves else EXIT_NOT_WELL


@app.command("group")
def explain_group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    last: Last = 10,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show the coordinator of a group, and the history of the partition with its offsets."""
    from metadata.explain.partition import Health, diagnose, partition_changes
    from metadata.internal_topics import GROUP_TOPIC, coordinating_partition
    from stele.admin.groups import DEAD

    with connect(bootstrap, timeout) as admin:
        history = fetch_history(admin)
        topic = history.image.topic(GROUP_TOPIC)
        if topic is None:
            raise CommandError(f"there is no group yet: the topic {GROUP_TOPIC} is not there")
        number = coordinating_partition(name, len(topic.partitions))
        diagnosis = diagnose(history, topic, number)
        offline = diagnosis.health is Health.OFFLINE
        described = None if offline else admin.describe_groups([name])[0]
    well = not offline and described is not None and described.state != DEAD
    changes = partition_changes(history, topic, number)
    if as_json:
        print_json(
            {
                "group": name,
                "coordinating_partition": number,
                "health": diagnosis.health.name.lower(),
                "state": described.state if described else None,
                "reasons": diagnosis.reasons,
                "remedies": diagnosis.remedies,
                "changes": [_change_json(each) for each in changes],
            }
        )
        return 0 if well else EXIT_NOT_WELL
    state = topic.partitions[number]
    who = f"broker {state.leader} coordinates it" if state.leader >= 0 else "nobody coordinates it"
    say(
        f"group {name!r}: {who}, as the leader of {GROUP_TOPIC}-{number} ({diagnosis.health.value})"
    )
    if described is not None:
        say(f"state {described.state}, {len(described.members)} members")
    _print_diagnosis(diagnosis)
    _print_changes(changes, last)
    return 0 if well else EXIT_NOT_WELL


app.command("audit")(explain_audit)
app.command("client")(explain_client)
app.command("queue")(explain_queue)


# ------------------------------------------------------------------------------------ parts


def _topic(image: MetadataImage, name: str, at: str | None) -> Topic:
    topic = image.topic(name)
    if topic is None:
        known = [each.name for each in image.sorted_topics()]
        verb = "is" if at is None else f"was, at {at},"
        raise CommandError(f"there {verb} no topic {name!r}.{did_you_mean(name, known)}")
    return topic


def _ids(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _names(partitions: tuple[Any, ...]) -> str:
    shown = ", ".join(f"{each.topic}-{each.partition}" for each in partitions[:10])
    return f"{shown}, … ({len(partitions)})" if len(partitions) > 10 else shown


def _advice(remedy: str) -> str:
    return f"to mend it: {remedy}"


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    for reason in diagnosis.reasons:
        say(f"because {reason}")
    for remedy in diagnosis.remedies:
        say(_advice(remedy))


def _print_changes(changes: list[Change], last: int) -> None:
    rows = []
    for each in changes[-last:]:
        state = each.state
        leader = None if state.leader < 0 else state.leader
        eligible = _ids(state.elr)
        rows.append(
            (
                each.offset,
                moment(each.time_ms),
                leader,
                state.leader_epoch,
                _ids(state.isr),
                eligible,
                each.cause,
            )
        )
    print_table(("OFFSET", "TIME (UTC)", "LEADER", "EPOCH", "ISR", "ELIGIBLE", "WHY"), rows)


def _change_json(change: Change) -> dict[str, Any]:
    state = change.state
    return {
        "offset": change.offset,
        "time_ms": change.time_ms,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "elr": state.elr,
        "replicas": state.replicas,
        "why": change.cause,
    }


__all__ = ["app"]
