"""``stele demo``: the options; the demo itself is in ``cli.demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="CSV file of order lines (.gz, too). Default: lines are made up."
        ),
    ] = None,
    orders: Annotated[
        int, typer.Option("--orders", min=1, help="Number of order lines to make up.")
    ] = 200_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the made-up order lines.")] = 1,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory in which the cluster's files are kept.")
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            min=1024,
            max=65000,
            help="First port of the cluster (default: free ports).",
        ),
    ] = None,
) -> None:
    """Orders in, leaders killed, orders out: six processes, start to end, with a proof."""
    import asyncio

    from rich.console import Console

    from cli.demo.run import DemoOptions, run_demo

    options = DemoOptions(file, orders, seed, directory, base_port)
    asyncio.run(run_demo(options, Console()))
