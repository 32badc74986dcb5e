"""``stele demo``: the options; the demo itself is in ``cli.demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    file: Annotated[
        Path | None, typer.Option("--file", help="Order lines as CSV (.gz too); none: made up.")
    ] = None,
    orders: Annotated[int, typer.Option("--orders", min=1, help="How many to make up.")] = 200_000,
    seed: Annotated[int, typer.Option("--seed", help="Of the made-up orders.")] = 1,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Keep the cluster's files here.")
    ] = None,
    base_port: Annotated[
        int | None, typer.Option("--base-port", min=1024, max=65000, help="None: free ports.")
    ] = None,
) -> None:
    """Orders in, leaders killed, orders out: six processes, start to end, with a proof."""
    import asyncio

    from rich.console import Console

    from cli.demo.run import DemoOptions, run_demo

    options = DemoOptions(file, orders, seed, directory, base_port)
    asyncio.run(run_demo(options, Console()))
