"""``stele top``: the nodes of a cluster, and the topics and clients that keep them busy."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.dev.directory import DEFAULT_DIRECTORY
from cli.options import EXIT_NOT_WELL, Json
from cli.output import UsageError, print_json, print_table

if TYPE_CHECKING:
    from cli.top.rates import Page


def top(
    metrics_servers: Annotated[
        str | None,
        typer.Option(
            "--metrics-servers",
            metavar="HOST:PORT,…",
            envvar="STELE_METRICS_SERVERS",
            help="The metrics.listener of each node (default: of the cluster in --dir).",
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Directory of a cluster of stele dev.")
    ] = DEFAULT_DIRECTORY,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")
    ] = 2.0,
    most: Annotated[
        int, typer.Option("--most", min=0, help="Number of topics, and of clients, that are shown.")
    ] = 10,
    once: Annotated[
        bool, typer.Option("--once", help="Print what happens within one interval, and end.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show what keeps the nodes busy, until q or Ctrl-C.

    CPU, memory and lag of each node, its requests and bytes per second, and the busiest topics.
    Clients are shown if they have quotas. With --once or --json the exit code is 3 if a node is
    down.
    """
    from cli.top.looking import look_at, places_of
    from cli.top.rates import NodeLook, page_of

    places = places_of(metrics_servers, directory)
    before: list[NodeLook] = []

    def next_page() -> Page:
        nonlocal before
        now = look_at(places)
        page = page_of(before, now, most)
        before = now
        return page

    if not once and not as_json:
        if not sys.stdin.isatty() or not sys.stdout.isatty():
            raise UsageError("stele top needs a terminal; --once or --json prints one table")
        from cli.top.screen import show_live

        show_live(next_page, interval_s)
        return 0
    next_page()
    time.sleep(interval_s)
    page = next_page()
    if as_json:
        print_json(page)
    else:
        _print(page)
    return EXIT_NOT_WELL if any(each.down is not None for each in page.nodes) else 0


def _print(page: Page) -> None:
    from cli.top.tables import tables_of

    for number, (columns, rows) in enumerate(tables_of(page)):
        if number:
            print()
        print_table(columns, rows)
