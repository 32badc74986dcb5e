"""``stele whatif`` and ``stele cluster restart-check``: what a loss would cost, beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import connect, no_such_topic
from cli.metadata_history import fetch_history
from cli.options import DEFAULT_BOOTSTRAP_SERVER, EXIT_NOT_WELL, Bootstrap, Json, Timeout
from cli.output import CommandError, UsageError, print_json, print_table
from stele.topic_names import INTERNAL_PREFIX

if TYPE_CHECKING:
    from controller.whatif import Consequence, WhatIf
    from metadata.image import MetadataImage
    from stele.sync import Admin


def whatif(
    kill: Annotated[
        str, typer.Option("--kill", metavar="ID,ID", help="Nodes that die, whatever their roles.")
    ] = "",
    lose_rack: Annotated[
        str, typer.Option("--lose-rack", metavar="RACK", help="Rack whose brokers all die.")
    ] = "",
    stop_controller: Annotated[
        str, typer.Option("--stop-controller", metavar="ID,ID", help="Controllers that stop.")
    ] = "",
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="Only these topics; may be repeated."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show what the cluster would lose if nodes died. Exit status 3: more than copies.

    The active controller's own rules are tried out on a copy of the metadata.
    """
    from controller.whatif import what_if

    dead, stopped = _ids(kill, "--kill"), _ids(stop_controller, "--stop-controller")
    if not (dead or lose_rack or stopped):
        raise UsageError("what if what? Give --kill, --lose-rack or --stop-controller")
    with connect(bootstrap, timeout) as admin:
        image = fetch_history(admin).image
        voters = admin.describe_quorum().voters_heard()
    if lose_rack:
        dead += _in_rack(image, lose_rack)
    found = what_if(image, voters, dead=dead, stopped_controllers=stopped)
    if found.unknown:
        raise CommandError(f"there is no node {', '.join(map(str, found.unknown))}")
    if topic:
        found = _only(found, image, topic)
    if as_json:
        print_json(
            {
                "harmless": found.harmless,
                "quorum_survives": found.quorum.survives,
                "consequences": found.consequences,
            }
        )
    else:
        _tell(found, topic is None)
        print(_sentence(found, sorted({*dead, *stopped}), topic or ()))
    return 0 if found.harmless else EXIT_NOT_WELL


def _only(found: WhatIf, image: MetadataImage, names: Sequence[str]) -> WhatIf:
    """Without the consequences for other topics. Raises CommandError."""
    known = [each.name for each in image.sorted_topics()]
    for name in names:
        if name not in known:
            raise no_such_topic(name, known)
    kept = tuple(each for each in found.consequences if each.partition.topic in names)
    return dataclasses.replace(found, consequences=kept)


def restart_check(
    node_id: Annotated[int, typer.Argument(metavar="NODE", help="Id of the node that is to stop.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Whether a node may be restarted now without anybody noticing. Exit status 3: not now."""
    with connect(bootstrap, timeout) as admin:
        reasons = _why_not(admin, node_id)
    if as_json:
        print_json({"node_id": node_id, "safe": not reasons, "reasons": reasons})
    else:
        for reason in reasons:
            print(f"not now: {reason}")
        if not reasons:
            print(f"node {node_id} may be restarted now")
    return EXIT_NOT_WELL if reasons else 0


def _why_not(admin: Admin, node_id: int) -> list[str]:
    from controller.whatif import what_if

    image, quorum = fetch_history(admin).image, admin.describe_quorum()
    found = what_if(image, quorum.voters_heard(), dead=[node_id])
    if found.unknown:
        raise CommandError(f"there is no node {node_id}")
    reasons = []
    if quorum.voter(node_id) is not None and not found.quorum.survives:
        reasons.append(
            f"only {found.quorum.left} of {found.quorum.voters} controllers would be left"
        )
    for what, concerned in (
        ("without a leader", [each for each in found.consequences if each.loses_reads]),
        ("below min.insync.replicas", [each for each in found.consequences if each.loses_writes]),
        ("elected uncleanly", [each for each in found.consequences if each.loses_records]),
        ("without a live copy of every record", [e for e in found.consequences if not e.copies]),
    ):
        if concerned:
            names = _names(concerned)
            reasons.append(f"{len(concerned)} partitions would be {what}: {names}")
    return reasons


# ------------------------------------------------------------------------------------ parts


def _ids(text: str, option: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise CommandError(
            f"{option} {text!r} is no list of ids: write for example 101,102"
        ) from None


def _in_rack(image: MetadataImage, rack: str) -> list[int]:
    brokers = image.sorted_brokers()
    found = [each.broker_id for each in brokers if each.rack == rack]
    if not found:
        racks = ", ".join(sorted({each.rack for each in brokers if each.rack})) or "none"
        raise CommandError(f"there is no broker in a rack {rack!r}; the racks are: {racks}")
    return found


def _tell(found: WhatIf, sums_internal: bool) -> None:
    """``sums_internal``: partitions of internal topics that lose nothing are one line."""
    quorum = found.quorum
    verb = "go on" if quorum.survives else "STOP: no metadata can change, no leader is elected"
    print(f"controllers: {quorum.left} of {quorum.voters} are left, and {verb}")
    rows = [
        (
            f"{each.partition.topic}-{each.partition.partition}",
            "no" if each.loses_reads else "yes",
            "no" if each.loses_writes else "yes",
            "LOST" if each.loses_records else "kept",
            each.copies,
            each.moves_to,
        )
        for each in found.consequences
        if not (sums_internal and _is_of_no_interest(each))
    ]
    if rows:
        columns = (
            "PARTITION",
            "READS",
            "WRITES (ACKS=ALL)",
            "RECORDS",
            "COPIES LEFT",
            "NEW LEADER",
        )
        print_table(columns, rows)
    if summed := len(found.consequences) - len(rows):
        print(f"{summed} partitions of internal topics lose copies or their leader, nothing more")
    for line in _advice(found.consequences):
        print(line)


def _is_of_no_interest(each: Consequence) -> bool:
    is_internal = each.partition.topic.startswith(INTERNAL_PREFIX)
    return is_internal and not (each.loses_reads or each.loses_writes or each.loses_records)


def _sentence(found: WhatIf, dead: Sequence[int], topics: Sequence[str]) -> str:
    without = f"Without {', '.join(map(str, dead))}"
    if found.harmless:
        which = f"every partition of {', '.join(topics)}" if topics else "every partition"
        return f"{without} {which} can be read and written, and the metadata can change."
    return f"{without} the cluster loses more than copies."


def _advice(consequences: tuple[Consequence, ...]) -> list[str]:
    lines = []
    alone = [each for each in consequences if each.copies == 0]
    writes = [each for each in consequences if each.loses_writes and not each.loses_reads]
    if alone:
        lines.append(
            f"{len(alone)} partitions have every record only on these nodes: wait until others are "
            f"in sync, or raise the replication factor: {_names(alone)}"
        )
    if writes:
        lines.append(
            f"{len(writes)} partitions would refuse acks=all: let more replicas join the ISR "
            f"first, or add replicas: {_names(writes)}"
        )
    return lines


def _names(consequences: list[Consequence]) -> str:
    shown = [f"{each.partition.topic}-{each.partition.partition}" for each in consequences[:5]]
    return ", ".join(shown) + (", …" if len(consequences) > 5 else "")
