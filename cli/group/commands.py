"""``stele group …``: consumer groups, with the options and tables of kafka-consumer-groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.completion import complete_group
from cli.connection import connect
from cli.group.named import delete_groups, named_groups
from cli.group.reset import check_no_share_groups, reset_offsets
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import (
    UsageError,
    known_words,
    note,
    print_json,
    print_table,
)
from stele.addresses import address_text

if TYPE_CHECKING:
    from stele.admin.coordinators import Coordinator
    from stele.admin.group_lag import PartitionLag
    from stele.admin.groups import GroupDescription, MemberDescription
    from stele.sync import Admin

app = typer.Typer(
    cls=CommandList, help="List, describe, reset and delete consumer groups.", no_args_is_help=True
)
app.command("reset-offsets")(reset_offsets)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="GROUP...", help="The groups.", autocompletion=complete_group),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every group of the cluster.")]

STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
)
"""The states of both protocols. A group in the state Dead is not there."""

TYPES = ("classic", "consumer", "share")


@app.command("list")
def list_command(
    states: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE,…",
            help=f"Only these states: {', '.join(STATES)}.",
        ),
    ] = "",
    types: Annotated[
        str,
        typer.Option("--type", metavar="TYPE,…", help=f"Only these types: {', '.join(TYPES)}."),
    ] = "",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List all groups."""
    wanted_states = known_words(states, STATES, "--state")
    wanted_types = known_words(types, TYPES, "--type")
    with connect(bootstrap, timeout) as admin:
        groups = admin.list_groups(states=wanted_states, types=wanted_types)
    if as_json:
        print_json(groups)
        return
    rows = [(each.group_id, each.type, each.protocol_type or None, each.state) for each in groups]
    print_table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)


@app.command()
def describe(
    names: Names = None,
    all_groups: AllGroups = False,
    offsets: Annotated[
        bool,
        typer.Option("--offsets", help="Show offsets and lag of each partition (the default)."),
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the state and the coordinator.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show epochs and the members' partitions, too.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show how far groups have read, who their members are, or what state they are in."""
    if offsets + members + state > 1:
        raise UsageError("give one of --offsets, --members and --state")
    with connect(bootstrap, timeout) as admin:
        groups = _described(admin, names or [], all_groups)
        found = {} if members or state else admin.group_lags(groups)
    if not as_json and not state:
        note_states(groups)
    if members:
        print_members(groups, verbose, as_json)
    elif state:
        print_states(groups, verbose, as_json)
    else:
        _print_lags(groups, found, verbose, as_json)


@app.command()
def delete(
    names: Names = None,
    all_groups: AllGroups = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Delete groups without members, and the offsets that they have committed."""
    with connect(bootstrap, timeout) as admin:
        groups = _named(admin, names or [], all_groups)
        delete_groups(admin, groups, "group", as_json)


@app.command("delete-offsets")
def delete_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1,…]",
            help="A topic, or some of its partitions; may be repeated.",
        ),
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Forget offsets of topics to which no member of the group is subscribed."""
    from cli.group.selection import known_partitions, selected
    from stele.errors import BulkError

    with connect(bootstrap, timeout) as admin:
        _named(admin, [name], everything=False)
        partitions = selected(topics, known_partitions(admin))
        try:
            admin.delete_group_offsets(name, partitions)
        except BulkError as error:
            for each in error.succeeded:
                note(f"stele: deleted the offset of {each}")
            raise
    if as_json:
        print_json(
            [{"topic": topic, "partition": each, "deleted": True} for topic, each in partitions]
        )
        return
    print_table(("TOPIC", "PARTITION", "STATUS"), [(*each, "deleted") for each in partitions])


# ------------------------------------------------------------------------------------- helpers


def _named(admin: Admin, names: list[str], everything: bool) -> list[str]:
    """The ids of groups that exist. Raises CommandError."""
    known = [each.group_id for each in admin.list_groups()]
    return named_groups(names, known, "group", everything)


def _described(admin: Admin, names: list[str], everything: bool) -> list[GroupDescription]:
    from stele.admin.groups import DEAD, SHARE

    groups = admin.describe_groups(_named(admin, names, everything))
    if not everything:
        check_no_share_groups(groups)
    # Others were deleted in between.
    return [each for each in groups if each.state != DEAD and each.type != SHARE]


def note_states(groups: list[GroupDescription]) -> None:
    for each in groups:
        if each.state == "Empty":
            note(f"stele: group {each.group_id!r} has no members")
        elif each.state != "Stable":
            note(f"stele: group {each.group_id!r} is being rebalanced ({each.state})")


def _print_lags(
    groups: list[GroupDescription],
    found: dict[str, list[PartitionLag]],
    verbose: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "partitions": [_lag_entry(each) for each in found[group.group_id]],
                }
                for group in groups
            ]
        )
        return
    columns = (
        *("GROUP", "TOPIC", "PARTITION", *(("LEADER-EPOCH",) if verbose else ())),
        *("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    rows = []
    for group in groups:
        for each in found[group.group_id]:
            entry = _lag_entry(each)
            if not verbose:
                del entry["leader_epoch"]
            del entry["metadata"], entry["group_instance_id"]
            rows.append((group.group_id, *entry.values()))
    print_table(columns, rows)


def _lag_entry(lag: PartitionLag) -> dict[str, object]:
    committed, member = lag.committed, lag.member
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "leader_epoch": committed and committed.leader_epoch,
        "current_offset": committed and committed.offset,
        "log_end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "consumer_id": member and member.member_id,
        "host": member and member.host,
        "client_id": member and member.client_id,
        "group_instance_id": member and member.group_instance_id,
        "metadata": committed and committed.metadata,
    }


def print_members(groups: list[GroupDescription], verbose: bool, as_json: bool) -> None:
    from cli.group.assignment import assignment_text

    if as_json:
        print_json(
            [
                {"group": each.group_id, "state": each.state, "members": each.members}
                for each in groups
            ]
        )
        return
    is_static = any(member.group_instance_id for each in groups for member in each.members)
    has_epochs = any(each.group_epoch is not None for each in groups)
    target = verbose and has_epochs
    is_migrating = any(len({member.is_classic for member in each.members}) > 1 for each in groups)
    columns = (
        *("GROUP", "CONSUMER-ID", *(("GROUP-INSTANCE-ID",) if is_static else ())),
        *("HOST", "CLIENT-ID", "#PARTITIONS", *(("CURRENT-EPOCH",) if target else ())),
        *(("CURRENT-ASSIGNMENT",) if verbose else ()),
        *(("TARGET-EPOCH", "TARGET-ASSIGNMENT") if target else ()),
        *(("UPGRADED",) if target and is_migrating else ()),
    )
    rows = [
        (
            *(group.group_id, each.member_id, *((each.group_instance_id,) if is_static else ())),
            *(each.host, each.client_id, len(each.assignment)),
            *((each.member_epoch,) if target else ()),
            *((assignment_text(each.assignment) or None,) if verbose else ()),
            *(_target_cells(group, each) if target else ()),
            *((_is_upgraded(each),) if target and is_migrating else ()),
        )
        for group in groups
        for each in group.members
    ]
    print_table(columns, rows)


def _is_upgraded(member: MemberDescription) -> bool | None:
    """Whether a member of a group of the consumer protocol uses that protocol itself."""
    return None if member.member_epoch is None else not member.is_classic


def _target_cells(
    group: GroupDescription, member: MemberDescription
) -> tuple[int | None, str | None]:
    """What a group of the consumer protocol is on its way to. ``-`` in classic groups."""
    from cli.group.assignment import assignment_text

    if member.target_assignment is None:
        return None, None
    return group.assignment_epoch, assignment_text(member.target_assignment) or None


def print_states(groups: list[GroupDescription], verbose: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "group": each.group_id,
                    "type": each.type,
                    "state": each.state,
                    "assignment_strategy": each.protocol,
                    "coordinator": each.coordinator.broker_id,
                    "group_epoch": each.group_epoch,
                    "target_assignment_epoch": each.assignment_epoch,
                    "members": len(each.members),
                }
                for each in groups
            ]
        )
        return
    columns = (
        *("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"),
        *(("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if verbose else ()),
        "#MEMBERS",
    )
    rows = [
        (
            each.group_id,
            _place(each.coordinator),
            each.protocol or None,
            each.state,
            *((each.group_epoch, each.assignment_epoch) if verbose else ()),
            len(each.members),
        )
        for each in groups
    ]
    print_table(columns, rows)


def _place(broker: Coordinator) -> str:
    return f"{address_text(broker.host, broker.port)} ({broker.broker_id})"
