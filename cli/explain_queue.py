"""``stele explain queue``: which record holds a share partition back, and which member has it."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, EXIT_NOT_WELL, Bootstrap, Json, Timeout
from cli.output import CommandError, did_you_mean, print_json, say
from cli.partition_name import parsed_partition


def explain_queue(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="The share group.")],
    name: Annotated[
        str, typer.Argument(metavar="TOPIC-PARTITION", help="A partition, for example orders-3.")
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> int:
    """Show which record holds a share group back in a partition, why, and what comes next."""
    from cli.queue_explanation import explain_unread, explain_window
    from stele.admin.groups import DEAD, SHARE
    from stele.ids import TopicPartition

    place = TopicPartition(*parsed_partition(name))
    with connect(bootstrap, timeout) as admin:
        (group,) = admin.describe_groups([group_id])
        if group.type != SHARE or group.state == DEAD:
            known = [each.group_id for each in admin.list_groups(types=[SHARE])]
            hint = did_you_mean(group_id, known)
            raise CommandError(f"there is no share group {group_id!r}.{hint}")
        offset = admin.list_share_group_offsets(group_id).get(place)
        window = admin.describe_share_window(group_id, place, max_ranges=1)
    if window is None:
        explanation = explain_unread(group, offset)
    else:
        explanation = explain_window(window, group, None if offset is None else offset.lag)
    if as_json:
        print_json(
            {
                "group": group_id,
                "partition": name,
                "health": explanation.queue.name.lower(),
                "reasons": explanation.reasons,
                "next": explanation.following,
                "remedies": explanation.remedies,
                "start_offset": offset.start_offset if offset else None,
                "lag": offset.lag if offset else None,
                "window": window,
            }
        )
    else:
        say(f"{name} of share group {group_id!r}: {explanation.queue.value}")
        if explanation.window:
            say(explanation.window)
        for line in explanation.reasons:
            say(f"because {line}")
        for line in explanation.following:
            say(f"next: {line}")
        for line in explanation.remedies:
            say(f"to mend it: {line}")
    return 0 if explanation.is_well else EXIT_NOT_WELL
