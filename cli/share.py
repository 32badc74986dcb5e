"""``stele share …``: share groups (KIP-932), with the options and tables of kafka-share-groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.completion import complete_group
from cli.connection import connect
from cli.group.commands import AllGroups, Names, note_states, print_members, print_states
from cli.group.named import delete_groups, named_groups
from cli.group.reset import (
    AllTopics,
    ByDuration,
    DryRun,
    Execute,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
    Topics,
    before_now,
    offsets_of,
    target_of,
)
from cli.group.selection import known_partitions, selected
from cli.group.times import duration_ms, timestamp_ms
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import (
    CommandError,
    UsageError,
    known_words,
    note,
    print_json,
    print_table,
)
from cli.share_consume import consume
from cli.share_redrive import redrive
from cli.share_window_table import print_windows
from stele.admin.offset_reset import Place, Plan, Target, plan

if TYPE_CHECKING:
    from stele.admin.groups import GroupDescription
    from stele.admin.share_groups import ShareGroupOffset
    from stele.ids import TopicPartition
    from stele.sync import Admin

app = typer.Typer(
    cls=CommandList,
    help=(
        "Take records from share groups; list, describe, reset and delete them; send dead letters "
        "back."
    ),
    no_args_is_help=True,
)
app.command("consume")(consume)
app.command("redrive")(redrive)

STATES = ("Empty", "Stable")

Name = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The group. It must have no members.",
        autocompletion=complete_group,
    ),
]


@app.command("list")
def list_command(
    states: Annotated[
        str,
        typer.Option("--state", metavar="STATE,…", help=f"Only these states: {', '.join(STATES)}."),
    ] = "",
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List all share groups."""
    from stele.admin.groups import SHARE

    wanted = known_words(states, STATES, "--state")
    with connect(bootstrap, timeout) as admin:
        groups = admin.list_groups(states=wanted, types=[SHARE])
    if as_json:
        print_json(groups)
        return
    print_table(("GROUP", "STATE"), [(each.group_id, each.state) for each in groups])


@app.command()
def describe(
    names: Names = None,
    all_groups: AllGroups = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the state and the coordinator.")
    ] = False,
    window: Annotated[
        bool,
        typer.Option("--window", help="Show what holds each partition back, and which members."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show epochs and the members' partitions, too.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show where share groups begin and their lag, their members, windows or states."""
    if members + state + window > 1:
        raise UsageError("--members, --state and --window exclude each other")
    with connect(bootstrap, timeout) as admin:
        groups = _described(admin, names or [], all_groups)
        offsets = (
            {}
            if members or state
            else {each.group_id: admin.list_share_group_offsets(each.group_id) for each in groups}
        )
        windows = (
            {
                (group, place): admin.describe_share_window(group, place, max_ranges=1)
                for group, places in offsets.items()
                for place in places
            }
            if window
            else {}
        )
    if not as_json and not state:
        note_states(groups)
    if members:
        print_members(groups, verbose, as_json)
    elif state:
        print_states(groups, verbose, as_json)
    elif window:
        print_windows(windows, as_json)
    else:
        _print_offsets(groups, offsets, verbose, as_json)


@app.command()
def reset(
    name: Name,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    to_offset: ToOffset = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Let a share group without members begin elsewhere; shows where unless --execute is given."""
    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    if bool(topics) == all_topics:
        raise UsageError("which partitions? Give --topic or --all-topics")
    target = target_of(
        {
            "--to-earliest": Target(Place.EARLIEST) if to_earliest else None,
            "--to-latest": Target(Place.LATEST) if to_latest else None,
            "--to-datetime": to_datetime and Target(Place.TIME, timestamp_ms(to_datetime)),
            "--by-duration": by_duration
            and Target(Place.TIME, before_now(duration_ms(by_duration))),
            "--to-offset": None if to_offset is None else Target(Place.OFFSET, to_offset),
        }
    )
    with connect(bootstrap, timeout) as admin:
        _check_inactive(admin, name)
        current = _start_offsets(admin, name)
        wanted = selected(topics, known_partitions(admin)) if topics else sorted(current)
        if not wanted:
            raise CommandError(f"share group {name!r} has read nothing: name topics with --topic")
        targets = dict.fromkeys(wanted, target)
        known = {each: offset for each, offset in current.items() if offset is not None}
        made = plan(targets, offsets_of(admin, known, targets))
        if execute:
            admin.alter_share_group_offsets(name, made.offsets)
    for warning in made.warnings:
        note(f"stele: {warning}")
    if not execute:
        note("stele: nothing is changed yet: --execute does it")
    _print_reset(name, current, made, executed=execute, as_json=as_json)


@app.command()
def delete(
    names: Names = None,
    all_groups: AllGroups = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Delete share groups without members, and what they know of their records."""
    with connect(bootstrap, timeout) as admin:
        groups = _named(admin, names or [], all_groups)
        delete_groups(admin, groups, "share group", as_json)


@app.command("delete-offsets")
def delete_offsets(
    name: Name,
    topics: Annotated[
        list[str], typer.Option("--topic", metavar="TOPIC", help="A topic; may be repeated.")
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Let a share group without members forget topics, so that it begins anew in them."""
    from stele.errors import BulkError

    wanted = list(dict.fromkeys(topics))
    with connect(bootstrap, timeout) as admin:
        _check_inactive(admin, name)
        try:
            admin.delete_share_group_offsets(name, wanted)
        except BulkError as error:
            for each in error.succeeded:
                note(f"stele: deleted the offsets of {each}")
            raise
    if as_json:
        print_json([{"topic": each, "deleted": True} for each in wanted])
        return
    print_table(("TOPIC", "STATUS"), [(each, "deleted") for each in wanted])


# ------------------------------------------------------------------------------------- helpers


def _named(admin: Admin, names: list[str], everything: bool) -> list[str]:
    """The ids of share groups that exist. Raises CommandError."""
    from stele.admin.groups import SHARE

    known = [each.group_id for each in admin.list_groups(types=[SHARE])]
    return named_groups(names, known, "share group", everything)


def _described(admin: Admin, names: list[str], everything: bool) -> list[GroupDescription]:
    from stele.admin.groups import SHARE

    groups = admin.describe_groups(_named(admin, names, everything))
    return [each for each in groups if each.type == SHARE]  # others were deleted in between


def _check_inactive(admin: Admin, name: str) -> None:
    """Raises CommandError."""
    for each in _described(admin, [name], everything=False):
        if each.members:
            raise CommandError(
                f"share group {name!r} has {len(each.members)} members: its offsets can be changed "
                "when all its consumers have stopped"
            )


def _start_offsets(admin: Admin, name: str) -> dict[TopicPartition, int | None]:
    return {
        place: each.start_offset for place, each in admin.list_share_group_offsets(name).items()
    }


def _print_offsets(
    groups: list[GroupDescription],
    offsets: Mapping[str, Mapping[TopicPartition, ShareGroupOffset]],
    verbose: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "partitions": [
                        {"topic": topic, "partition": number, **each._asdict()}
                        for (topic, number), each in offsets[group.group_id].items()
                    ],
                }
                for group in groups
            ]
        )
        return
    columns = (
        *("GROUP", "TOPIC", "PARTITION", *(("LEADER-EPOCH",) if verbose else ())),
        *("START-OFFSET", "LAG"),
    )
    rows = [
        (
            *(group.group_id, *place, *((each.leader_epoch,) if verbose else ())),
            *(each.start_offset, each.lag),
        )
        for group in groups
        for place, each in offsets[group.group_id].items()
    ]
    print_table(columns, rows)


def _print_reset(
    name: str,
    current: Mapping[TopicPartition, int | None],
    made: Plan,
    *,
    executed: bool,
    as_json: bool,
) -> None:
    rows = [
        (name, *place, current.get(place), offset) for place, offset in sorted(made.offsets.items())
    ]
    if as_json:
        keys = ("group", "topic", "partition", "start_offset", "new_offset")
        offsets = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"executed": executed, "offsets": offsets})
        return
    print_table(("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "NEW-OFFSET"), rows)
