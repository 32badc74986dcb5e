"""``stele explain audit``: what was denied and refused, by which rule, and what mends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cli.options import EXIT_NOT_WELL, Json
from cli.output import CommandError, note, print_json, print_table, say

if TYPE_CHECKING:
    from security.audit_report import AuditReport, DenialKey

_KINDS = {"tls_failed": "TLS", "login_failed": "login"}


def explain_audit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="audit.log.file of one or more nodes, or their logs; - is the standard input.",
        ),
    ],
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only what was denied to this principal.")
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", metavar="TYPE:NAME", help="Only what is about this resource."),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", min=1, help="Number of lines of each kind, the newest ones.")
    ] = 30,
    as_json: Json = False,
) -> int:
    """Show what nodes have denied and refused, from their audit logs; no cluster is asked.

    The exit status is 3 if a listener still goes on with its old certificate, because the new one
    was refused.
    """
    from security.audit_report import AuditReport

    report = AuditReport()
    for file in files:
        try:
            with _lines_of(file) as lines:
                found = sum(report.take(line) for line in lines)
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}") from None
        if not found:
            note(f"{file} has no line of the audit log")
    denials = [
        key
        for key, _ in sorted(report.denials.items(), key=lambda each: each[1].last)
        if principal in (None, key.principal) and resource in (None, key.resource)
    ][-last:]
    everything = principal is None and resource is None
    connections = _connections(report) if everything else []
    certificates = report.refused_certificates if everything else []
    if as_json:
        print_json(
            {
                "denials": _denials(report, denials),
                "connections": connections[-last:],
                "refused_certificates": [
                    {"since": time, "listener": key.listener, "reason": key.reason}
                    for time, key in certificates
                ],
                "left_out": [
                    {"principal": who, "denials": count} for who, count in report.left_out.items()
                ],
            }
        )
    else:
        _print(report, denials, connections[-last:])
    return EXIT_NOT_WELL if certificates else 0


def _lines_of(file: Path) -> AbstractContextManager[TextIO]:
    """Raises OSError."""
    if str(file) == "-":
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # a TextIOWrapper
        return nullcontext(sys.stdin)
    return file.open(encoding="utf-8", errors="replace")


def _denials(report: AuditReport, keys: Sequence[DenialKey]) -> list[dict[str, Any]]:
    return [
        {
            "times": report.denials[key].times,
            "last": report.denials[key].last,
            **key._asdict(),
            "hosts": list(report.denials[key].hosts),
            "clients": list(report.denials[key].clients),
            "resource": key.resource,
            "remedy": key.remedy,
        }
        for key in keys
    ]


def _connections(report: AuditReport) -> list[dict[str, Any]]:
    found = [
        {"times": seen.times, "last": seen.last, **key._asdict(), "event": key.event.value}
        for key, seen in report.connections.items()
    ]
    return sorted(found, key=lambda each: str(each["last"]))


def _print(
    report: AuditReport, denials: Sequence[DenialKey], connections: list[dict[str, Any]]
) -> None:
    from security.audit_report import remedies

    if denials:
        rows = [
            (
                report.denials[key].times,
                report.denials[key].last,
                key.principal,
                key.operation,
                key.resource,
                ", ".join(report.denials[key].hosts),
                key.listener,
                key.rule,
            )
            for key in denials
        ]
        columns = ("DENIED", "LAST (UTC)", "PRINCIPAL", "OPERATION", "RESOURCE", "FROM")
        print_table((*columns, "LISTENER", "RULE"), rows)
        for remedy in remedies(denials):
            say(f"to mend it: {remedy}")
    if connections:
        print_table(
            ("REFUSED", "LAST (UTC)", "AT", "FROM", "LISTENER", "WHY"),
            [
                (
                    each["times"],
                    each["last"],
                    _KINDS[each["event"]],
                    each["host"],
                    each["listener"],
                    each["reason"],
                )
                for each in connections
            ],
        )
    for time, key in report.refused_certificates:
        say(f"listener {key.listener} goes on with its old certificate since {time}: {key.reason}")
    for who, count in report.left_out.items():
        say(f"{count} more denials of {who or 'the node'} were only counted")
    if not (denials or connections or report.refused_certificates):
        say("nothing was denied or refused")
