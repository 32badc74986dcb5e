"""``stele share redrive``: dead letters of a share group back to the topics that they came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.client_properties import command_security
from cli.completion import complete_group
from cli.connection import milliseconds
from cli.group.reset import DryRun, Execute
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout, tell_wait
from cli.output import CommandError, UsageError, note, print_json, print_table
from cli.records.filters import record_filter

if TYPE_CHECKING:
    from stele.redrive.redrive import Redrive, RedrivePlan, RedriveState

_TELL_EVERY_S: Final = 5.0


def redrive(
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="The share group.", autocompletion=complete_group),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Only letters whose records were in this topic; may be repeated."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only letters with this key.")] = None,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Only letters whose reason contains this, such as: rejected, count exceeded.",
        ),
    ] = "",
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME[=VALUE]",
            help="Only letters with this header; may be repeated: then all of them.",
        ),
    ] = None,
    letter_topic: Annotated[
        str | None,
        typer.Option(
            "--letters",
            metavar="TOPIC",
            help="The topic of the letters, if it is not that of the group's configuration.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="At most this number of records a second.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Stop after this number of letters.")
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Send dead letters of a share group back to their topics; counts them unless --execute is set.

    Each letter goes back once: a command that was interrupted goes on where it has stopped. Letters
    that a filter leaves go back with a later redrive.
    """
    import asyncio

    from stele.redrive.letters import LetterFilter
    from stele.redrive.redrive import RedrivePlan

    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    if rate is not None and rate <= 0:
        raise UsageError(f"--rate {rate:g} is not above 0")
    accepts = record_filter(key, headers or [])
    letter_filter = LetterFilter(frozenset(topics or ()), reason, accepts)
    plan = RedrivePlan(group, letter_filter, letter_topic, rate, limit)
    asyncio.run(_redrive(plan, execute, as_json, bootstrap, timeout))


async def _redrive(
    plan: RedrivePlan, execute: bool, as_json: bool, bootstrap: str, timeout_s: float
) -> None:
    """Raises CommandError, SteleError, CancelledError after a Ctrl-C."""
    import asyncio

    from stele.errors import ProducerFencedError, SteleError
    from stele.real import RealClock
    from stele.redrive.redrive import Redrive

    options: dict[str, Any] = {
        "default_api_timeout_ms": milliseconds(timeout_s),
        "on_wait": tell_wait,
        **command_security(),
    }
    tell = _Telling(execute, RealClock().monotonic)
    async with Redrive(plan, bootstrap, on_progress=tell, **options) as running:
        try:
            await running.run(is_dry=not execute)
        except ProducerFencedError as error:
            _report(running, executed=execute, is_complete=False, as_json=as_json)
            raise CommandError(
                f"another redrive of share group {plan.group!r} has begun and goes on with its "
                "letters"
            ) from error
        except (SteleError, asyncio.CancelledError):
            _report(running, executed=execute, is_complete=False, as_json=as_json)
            raise
        _report(running, executed=execute, is_complete=True, as_json=as_json)


class _Telling:
    """Says from time to time how far the redrive has come."""

    def __init__(self, executed: bool, now_s: Callable[[], float]) -> None:
        self._verb = "sent back" if executed else "counted"
        self._now_s = now_s
        self._told_s = now_s()

    def __call__(self, state: RedriveState) -> None:
        now_s = self._now_s()
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            note(
                f"stele: {state.sent} letters {self._verb}; looked at {state.looked_at} of "
                f"{state.to_look_at} offsets of {state.letter_topic!r}"
            )


def _report(running: Redrive, *, executed: bool, is_complete: bool, as_json: bool) -> None:
    state = running.state
    if not (is_complete or state.counts):
        return  # the error says it all
    _tell_standing(state, executed=executed, is_complete=is_complete)
    rows = sorted(state.counts.items())
    if as_json:
        print_json(
            {
                "group": running.plan.group,
                "dead_letter_topic": state.letter_topic,
                "executed": executed,
                "complete": is_complete,
                "sent": state.sent if executed else 0,
                "unconfirmed": state.unconfirmed,
                "letters": [{**kind._asdict(), "count": count} for kind, count in rows],
            }
        )
        return
    print_table(
        ("TOPIC", "REASON", "STATUS", "LETTERS"),
        [
            (kind.topic, kind.reason or None, _status(kind.fate.value, executed), count)
            for kind, count in rows
        ],
    )


def _status(fate: str, executed: bool) -> str:
    return "sent back" if executed and fate == "due" else fate


def _tell_standing(state: RedriveState, *, executed: bool, is_complete: bool) -> None:
    if not executed:
        note("stele: nothing is sent yet: --execute does it")
        if state.is_continued:
            note("stele: letters that an earlier redrive has sent back are not counted")
        return
    if not is_complete:
        doubt = (
            f" {state.unconfirmed} more were being sent: they are sent back together or not at all."
            if state.unconfirmed
            else ""
        )
        note(
            f"stele: stopped after {state.sent} letters, at {state.looked_at} of "
            f"{state.to_look_at} offsets of {state.letter_topic!r}.{doubt} The same command goes "
            "on there"
        )
