"""``stele group reset-offsets``."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import connect
from cli.group.offset_file import Offsets, offsets_text, read_offsets
from cli.group.selection import check_exist, known_partitions, selected
from cli.group.times import duration_ms, timestamp_ms
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import CommandError, UsageError, did_you_mean, note, print_json, print_table
from stele.admin.offset_reset import PartitionOffsets, Place, Target, plan

if TYPE_CHECKING:
    from stele.admin.groups import GroupDescription
    from stele.ids import TopicPartition
    from stele.sync import Admin

_START, _END = -2, -1
"""Stand for the start and the end of a log in ``Admin.list_offsets``."""

Partitions = Mapping[str, Sequence[int]]


# The options of the command.
Groups = Annotated[
    list[str] | None,
    typer.Argument(metavar="GROUP...", help="The groups. They must have no members."),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every group of the cluster.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:0,1,…]",
        help="A topic, or some of its partitions; may be repeated.",
    ),
]
AllTopics = Annotated[
    bool,
    typer.Option("--all-topics", help="All partitions for which the group has committed offsets."),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Move to the first record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Move to the end.")]
ToCurrent = Annotated[
    bool,
    typer.Option(
        "--to-current", help="Move to the committed offset, or to the end if there is none."
    ),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="YYYY-MM-DDThh:mm:ss.sss",
        help="Move to the first record at or after this time (UTC, unless ±hh:mm follows).",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="Move to the first record of the last such period, e.g. P1D or PT1H30M.",
    ),
]
ToOffset = Annotated[int | None, typer.Option("--to-offset", min=0, help="Move to this offset.")]
ShiftBy = Annotated[
    int | None,
    typer.Option(
        "--shift-by", help="Move forward by this number of offsets; a negative number moves back."
    ),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        exists=True,
        dir_okay=False,
        help="Move to the offsets in a file that --export wrote.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Carry the reset out.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done (the default).")
]
Export = Annotated[
    bool, typer.Option("--export", help="Print CSV for --from-file instead of a table.")
]


def reset_offsets(
    names: Groups = None,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    export: Export = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Set the committed offsets of groups without members; shows them unless --execute is given."""
    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    if export and as_json:
        raise UsageError("--export and --json exclude each other")
    target = target_of(
        {
            "--to-earliest": Target(Place.EARLIEST) if to_earliest else None,
            "--to-latest": Target(Place.LATEST) if to_latest else None,
            "--to-current": Target(Place.CURRENT) if to_current else None,
            "--to-datetime": to_datetime and Target(Place.TIME, timestamp_ms(to_datetime)),
            "--by-duration": by_duration
            and Target(Place.TIME, before_now(duration_ms(by_duration))),
            "--to-offset": None if to_offset is None else Target(Place.OFFSET, to_offset),
            "--shift-by": None if shift_by is None else Target(Place.SHIFT, shift_by),
            "--from-file": from_file and Target(Place.OFFSET),
        }
    )
    if [bool(topics), all_topics, from_file is not None].count(True) != 1:
        raise UsageError("which partitions? Give --topic, --all-topics or --from-file")
    if bool(names) == all_groups:
        raise UsageError("which groups? Name some, or give --all-groups")
    with connect(bootstrap, timeout) as admin:
        groups = _inactive(admin, names or [])
        known = known_partitions(admin)
        fixed = {} if from_file is None else read_offsets(from_file, groups)
        resets = [
            _Reset.of(admin, group, target, _wanted(admin, group, topics, known, fixed), known)
            for group in groups
        ]
        if execute:
            _carry_out(admin, resets)
    for warning in (line for each in resets for line in each.warnings):
        note(f"stele: {warning}")
    if not execute and not export:
        note("stele: nothing is changed yet: --execute does it")
    _print(resets, export=export, as_json=as_json, executed=execute)


class _Reset:
    """The new offsets of one group."""

    def __init__(
        self, group: str, committed: Offsets, offsets: Offsets, warnings: list[str]
    ) -> None:
        self.group = group
        self.committed = committed
        self.offsets = offsets
        self.warnings = warnings

    @classmethod
    def of(
        cls,
        admin: Admin,
        group: str,
        target: Target,
        wanted: Collection[TopicPartition] | Offsets,
        known: Partitions,
    ) -> _Reset:
        """``wanted``: the partitions, or for each of them the offset of a file."""
        check_exist(wanted, known)
        offsets = admin.list_group_offsets(group)
        committed = {name: each.offset for name, each in offsets.items()}
        targets = (
            {name: Target(Place.OFFSET, offset) for name, offset in wanted.items()}
            if isinstance(wanted, dict)
            else dict.fromkeys(wanted, target)
        )
        made = plan(targets, offsets_of(admin, committed, targets))
        return cls(group, committed, made.offsets, made.warnings)


def target_of(options: Mapping[str, Target | str | Path | None]) -> Target:
    given = {name: each for name, each in options.items() if isinstance(each, Target)}
    if not given:
        raise UsageError(f"where to? Give one of {', '.join(options)}")
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")
    (target,) = given.values()
    return target


def before_now(age_ms: int) -> int:
    return int(time.time() * 1000) - age_ms


def _inactive(admin: Admin, names: list[str]) -> list[str]:
    """The groups, all without members. Raises CommandError.

    A group that does not exist is made by a reset, as with Kafka's tool.
    """
    from stele.admin.groups import DEAD, EMPTY, SHARE

    known = [each.group_id for each in admin.list_groups() if each.type != SHARE]
    groups = list(dict.fromkeys(names)) or known
    described = admin.describe_groups(groups)
    check_no_share_groups(described)
    for each in described:
        if each.state not in (DEAD, EMPTY):
            raise CommandError(
                f"group {each.group_id!r} has members (it is {each.state}): its offsets can be "
                "reset when all its consumers have stopped"
            )
        if each.state == DEAD:
            note(
                f"stele: there is no group {each.group_id!r}; a reset makes one."
                f"{did_you_mean(each.group_id, known)}"
            )
    return groups


def check_no_share_groups(groups: Sequence[GroupDescription]) -> None:
    """Raises CommandError."""
    from stele.admin.groups import SHARE

    for each in groups:
        if each.type == SHARE:
            raise CommandError(f"{each.group_id!r} is a share group: see stele share --help")


def _carry_out(admin: Admin, resets: list[_Reset]) -> None:
    """Raises CommandError that says which groups were reset before the failure."""
    from stele.errors import SteleError

    for number, each in enumerate(resets):
        try:
            admin.alter_group_offsets(each.group, each.offsets)
        except SteleError as error:
            done = ", ".join(earlier.group for earlier in resets[:number]) or "none"
            raise CommandError(
                f"group {each.group!r}: {error}; groups that were reset: {done}"
            ) from error


def _wanted(
    admin: Admin,
    group: str,
    topics: list[str] | None,
    known: Partitions,
    fixed: Mapping[str, Offsets],
) -> Collection[TopicPartition] | Offsets:
    if fixed:
        if group not in fixed:
            raise CommandError(f"the file has no offsets of group {group!r}")
        return fixed[group]
    if topics:
        return selected(topics, known)
    partitions = list(admin.list_group_offsets(group))
    if not partitions:
        raise CommandError(f"group {group!r} has committed no offsets: name topics with --topic")
    return partitions


def offsets_of(
    admin: Admin, committed: Offsets, targets: Mapping[TopicPartition, Target]
) -> dict[TopicPartition, PartitionOffsets]:
    starts = admin.list_offsets(dict.fromkeys(targets, _START))
    ends = admin.list_offsets(dict.fromkeys(targets, _END))
    timed = {
        name: max(each.number, 0) for name, each in targets.items() if each.place is Place.TIME
    }
    since = admin.list_offsets(timed) if timed else {}
    return {
        name: PartitionOffsets(
            starts[name].offset,
            ends[name].offset,
            committed.get(name),
            since[name].offset if name in since and since[name].offset >= 0 else None,
        )
        for name in targets
    }


def _print(resets: list[_Reset], *, export: bool, as_json: bool, executed: bool) -> None:
    if export:
        print(offsets_text({each.group: each.offsets for each in resets}), end="")
        return
    rows = [
        (each.group, *name, each.committed.get(name), offset)
        for each in resets
        for name, offset in sorted(each.offsets.items())
    ]
    if as_json:
        keys = ("group", "topic", "partition", "current_offset", "new_offset")
        offsets = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"executed": executed, "offsets": offsets})
        return
    print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)
