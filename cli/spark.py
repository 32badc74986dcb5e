"""``stele spark …``: the pipelines that run on Spark."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from cli.client_properties import command_security
from cli.command_list import CommandList
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import CommandError, did_you_mean, print_json, print_table

app = typer.Typer(cls=CommandList, help="Run pipelines on Spark.", no_args_is_help=True)

_ANY_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List all pipelines."""
    _check_pyspark()
    from spark.pipelines import PIPELINES

    if as_json:
        print_json(PIPELINES)
        return
    print_table(("NAME", "WHAT"), list(PIPELINES.items()))


@app.command("run", context_settings=_ANY_OPTIONS)
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The pipeline. Its own --help has its options.")],
) -> None:
    """Run a pipeline: stele spark run NAME --help shows its options."""
    _check_pyspark()
    from spark.pipelines import PIPELINES, main_of

    if name in ("-h", "--help"):
        print(context.get_help())
        return
    if name not in PIPELINES:
        raise CommandError(f"there is no pipeline {name!r}{did_you_mean(name, list(PIPELINES))}")
    code = main_of(name)(context.args)
    if code:
        raise typer.Exit(code)


@app.command("sweep")
def sweep(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    ledger: Annotated[
        str, typer.Option("--ledger", help="Ledger topic of the writes.")
    ] = "spark-ledger",
    older_than: Annotated[
        int,
        typer.Option(
            "--older-than",
            help="Only transactions that have been open for this number of seconds.",
        ),
    ] = 3_600,
    timeout: Timeout = 60.0,
    as_json: Json = False,
) -> None:
    """Abort transactions of exactly-once writes whose driver died and never came back."""
    _check_pyspark()
    from stele.security.properties import as_properties
    from stele.spark.exactly_once_sink import sweep as sweep_now
    from stele.spark.options import SinkOptions

    security = as_properties(command_security())
    options = SinkOptions.parse(
        {
            "bootstrap.servers": bootstrap,
            **{f"kafka.{name}": value for name, value in security.items()},
            "ledgerTopic": ledger,
            "stele.total.timeout.ms": str(int(timeout * 1000)),
        }
    )
    aborted = sweep_now(options, older_than * 1000)
    if as_json:
        print_json(aborted)
        return
    for name in aborted:
        print(f"aborted {name}")
    print(f"{len(aborted)} transactions were aborted")


def _check_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError("PySpark is not installed: pip install 'stele-log[spark]'")
