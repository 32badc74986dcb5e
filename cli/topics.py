"""``stele topic …``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.command_list import CommandList
from cli.completion import complete_topic
from cli.connection import check_topics, connect, no_such_topic
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import (
    UsageError,
    as_plain,
    key_values,
    print_json,
    print_table,
)
from cli.topic_measures import Measures, measure
from cli.watch import is_watching
from stele.ids import TopicPartition, encode_uuid

if TYPE_CHECKING:
    from stele.admin.descriptions import TopicDescription
    from stele.sync import Admin

app = typer.Typer(
    cls=CommandList, help="Create, list, describe, alter and delete topics.", no_args_is_help=True
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=complete_topic)
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="The topics.", autocompletion=complete_topic)
]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A topic config; may be repeated."),
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number; -1: the cluster's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Number; -1: the cluster's default.")
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Create a topic."""
    from stele.admin.descriptions import NewTopic
    from stele.errors import ApiError, ErrorCode

    topic = NewTopic(name, partitions, replication_factor, key_values(config or (), "--config"))
    with connect(bootstrap, timeout) as admin:
        try:
            (created,) = admin.create_topics([topic], request_id=request_id_of(request_id))
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                if as_json:
                    print_json({"name": name, "created": False})
                else:
                    print(f"topic {name} is there already")
                return
            raise
    if as_json:
        print_json(created)
        return
    print(
        f"created topic {name}: {created.partitions} partitions, "
        f"replication factor {created.replication_factor}"
        + (", when this request came first" if created.already_done else "")
    )


@app.command("list")
def list_command(
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List all topics."""
    with connect(bootstrap, timeout) as admin:
        topics = admin.list_topics(linearizable=not local)
    if as_json:
        print_json([_summary(topic) for topic in topics])
        return
    columns = ("TOPIC", "PARTITIONS", "REPLICATION", "UNDER-REPLICATED", "OFFLINE")
    print_table(columns, [tuple(_summary(topic).values()) for topic in topics])


@app.command()
def describe(
    names: Names,
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show partitions, leaders, replicas, sizes and the configs set on a topic.

    With --watch also the records per second of each partition.
    """
    with connect(bootstrap, timeout) as admin:
        topics = _described(admin, names, local)
    measures = measure(bootstrap, timeout, topics)
    if as_json:
        print_json([_with_measures(topic, measures) for topic in topics])
        return
    for topic in topics:
        configs = ", ".join(f"{key}={value}" for key, value in topic.configs.items()) or "none set"
        size = measures.size_of(topic)
        known = "" if size is None else f"  bytes {size}"
        print(f"{topic.name}  id {encode_uuid(topic.topic_id)}{known}  configs: {configs}")
        is_moving = any(each.adding_replicas or each.removing_replicas for each in topic.partitions)
        is_lacking = any(each.offline_replicas for each in topic.partitions)
        print_table(
            (
                *_COLUMNS,
                *_MEASURE_COLUMNS[: 2 if is_watching() else 1],
                *(_OFFLINE_COLUMNS if is_lacking else ()),
                *(_MOVING_COLUMNS if is_moving else ()),
            ),
            [
                (
                    each.partition,
                    each.leader,
                    each.leader_epoch,
                    _ids(each.replicas),
                    _ids(each.isr),
                    _ids(each.elr) or None,
                    each.unclean_elections or None,
                    *_measured(TopicPartition(topic.name, each.partition), measures),
                    *((_ids(each.offline_replicas) or None,) if is_lacking else ()),
                    *(_moving(each.adding_replicas, each.removing_replicas) if is_moving else ()),
                )
                for each in topic.partitions
            ],
        )


_COLUMNS = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR", "UNCLEAN ELECTIONS")
_MEASURE_COLUMNS = ("BYTES", "RECORDS/S")
_OFFLINE_COLUMNS = ("OFFLINE",)
_MOVING_COLUMNS = ("ADDING", "REMOVING")


def _measured(partition: TopicPartition, measures: Measures) -> tuple[object, ...]:
    size = measures.sizes_bytes.get(partition)
    if not is_watching():
        return (size,)
    rate = measures.records_per_s.get(partition)
    return size, None if rate is None else f"{rate:.1f}"


def _with_measures(topic: TopicDescription, measures: Measures) -> dict[str, object]:
    plain: dict[str, Any] = as_plain(topic)
    for each in plain["partitions"]:
        name = TopicPartition(topic.name, each["partition"])
        each["size_bytes"] = measures.sizes_bytes.get(name)
        if is_watching():
            each["records_per_s"] = measures.records_per_s.get(name)
    return plain


@app.command()
def elect(
    name: Name,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", help="Only this partition; may be repeated.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Let any live replica lead a partition without a leader: LOSES RECORDS.",
        ),
    ] = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Let preferred replicas lead, or with --unclean any live replica of an offline partition."""
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [name])
        (topic,) = admin.describe_topics([name])
        numbers = partitions or [
            each.partition
            for each in topic.partitions
            if (each.leader is None if unclean else each.leader != each.replicas[0])
        ]
        elected = (
            admin.elect_leaders(
                [(name, number) for number in numbers],
                unclean=unclean,
                request_id=request_id_of(request_id),
            )
            if numbers
            else []
        )
    if as_json:
        print_json([{"topic": each.topic, "partition": each.partition} for each in elected])
    elif elected:
        print("elected: " + ", ".join(str(each.partition) for each in elected))
    else:
        print("no partition needs an election")


def _moving(adding: tuple[int, ...], removing: tuple[int, ...]) -> tuple[str | None, str | None]:
    return _ids(adding) or None, _ids(removing) or None


@app.command()
def delete(
    names: Names,
    request_id: RequestId = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Delete topics and all their records."""
    with connect(bootstrap, timeout) as admin:
        if request_id is None:  # else they may be gone by that very request
            check_topics(admin, names)
        admin.delete_topics(names, request_id=request_id_of(request_id))
    if as_json:
        print_json([{"name": name, "deleted": True} for name in names])
        return
    for name in names:
        print(f"deleted topic {name}")


@app.command("delete-records")
def delete_records(
    name: Name,
    partition: Annotated[int, typer.Option("--partition", help="Number of the partition.")],
    before: Annotated[
        int,
        typer.Option(
            "--before",
            metavar="OFFSET",
            help="Delete the records below this offset; -1: all committed records.",
        ),
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Delete a partition's records below an offset."""
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [name])
        (start,) = admin.delete_records({(name, partition): before}).values()
    if as_json:
        print_json({"name": name, "partition": partition, "low_watermark": start})
    else:
        print(f"{name}-{partition} begins at offset {start}")


@app.command()
def alter(
    name: Name,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="NAME",
            help="Restore the default of a config; may be repeated.",
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="Number of partitions in all; more than now."),
    ] = None,
    request_id: RequestId = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Change a topic's configs, or give it more partitions."""
    from stele.admin.descriptions import ConfigResource

    changes: dict[str, str | None] = {**key_values(config or (), "--config")}
    changes.update(dict.fromkeys(delete_config or ()))
    if not changes and partitions is None:
        raise UsageError(
            "nothing to change: give --config NAME=VALUE, --delete-config NAME or --partitions"
        )
    if changes and partitions is not None:
        raise UsageError("change configs and partitions one after the other: both are a request")
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [name])
        again = request_id_of(request_id)
        if partitions is not None:
            admin.create_partitions({name: partitions}, request_id=again)
        else:
            admin.alter_configs({ConfigResource.topic(name): changes}, request_id=again)
    if not as_json:
        print(f"altered topic {name}")
    elif partitions is not None:
        print_json({"name": name, "partitions": partitions})
    else:
        print_json({"name": name, "changed": changes})


@app.command()
def configs(
    name: Name,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show all configs of a topic, and where each comes from."""
    from stele.admin.descriptions import ConfigResource

    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [name])
        ((_, entries),) = admin.describe_configs([ConfigResource.topic(name)]).items()
    if as_json:
        print_json(entries)
        return
    rows = [(each.name, each.value, each.source) for each in entries]
    print_table(("CONFIG", "VALUE", "SOURCE"), rows)


def _described(admin: Admin, names: list[str], local: bool) -> list[TopicDescription]:
    by_name = {topic.name: topic for topic in admin.list_topics(linearizable=not local)}
    for name in names:
        if name not in by_name:
            raise no_such_topic(name, by_name)
    return [by_name[name] for name in names]


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "under_replicated": sum(each.is_under_replicated for each in topic.partitions),
        "offline": sum(each.leader is None for each in topic.partitions),
    }


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(str(each) for each in ids)
