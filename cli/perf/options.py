"""The options of ``stele perf …``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.client_properties import VARIABLE
from cli.options import DEFAULT_BOOTSTRAP_SERVER

Topic = Annotated[str, typer.Option("--topic", help="An existing topic.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="STELE_BOOTSTRAP_SERVER",
        help=f"Kafka ports of some brokers: host:port,… (default {DEFAULT_BOOTSTRAP_SERVER})",
    ),
]
Interval = Annotated[
    int,
    typer.Option(
        "--reporting-interval", min=1, metavar="MS", help="Milliseconds between two lines."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, help="Seconds without a record after which the command gives up."
    ),
]
_PROPERTY_HELP = "A property of the client; may be repeated."
_FILE_HELP = "A file with properties of the client."
RecordsToSend = Annotated[
    int, typer.Option("--num-records", min=1, help="Number of records to send.")
]
Throughput = Annotated[
    float, typer.Option("--throughput", help="Records per second; -1: as fast as possible.")
]
RecordSize = Annotated[
    int | None,
    typer.Option("--record-size", min=1, help="Size of a record in bytes, made of random letters."),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option(
        "--payload-file",
        exists=True,
        dir_okay=False,
        help="File of values. Each record gets one of them at random.",
    ),
]
PayloadDelimiter = Annotated[
    str, typer.Option("--payload-delimiter", help="Separator between two values of the file.")
]
PayloadMonotonic = Annotated[
    bool, typer.Option("--payload-monotonic", help="Values are 0, 1, 2, …")
]
WarmupRecords = Annotated[
    int,
    typer.Option(
        "--warmup-records",
        min=0,
        help="Number of first records that a second summary leaves out.",
    ),
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", help="Send in transactions with this id."),
]
TransactionDuration = Annotated[
    int | None,
    typer.Option(
        "--transaction-duration-ms",
        min=1,
        help=(
            "Milliseconds after which a transaction is committed (default 3000). Without "
            "--transactional-id a random id is used."
        ),
    ),
]
ProducerProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--producer-props", "--command-property", metavar="NAME=VALUE", help=_PROPERTY_HELP
    ),
]
ProducerFile = Annotated[
    Path | None,
    typer.Option(
        "--producer.config",
        "--command-config",
        envvar=VARIABLE,
        exists=True,
        dir_okay=False,
        help=_FILE_HELP,
    ),
]
ConsumerProperties = Annotated[
    list[str] | None,
    typer.Option("--command-property", metavar="NAME=VALUE", help=_PROPERTY_HELP),
]
ConsumerFile = Annotated[
    Path | None,
    typer.Option(
        "--consumer.config",
        "--command-config",
        envvar=VARIABLE,
        exists=True,
        dir_okay=False,
        help=_FILE_HELP,
    ),
]
RecordsToRead = Annotated[
    int, typer.Option("--messages", "--num-records", min=1, help="Number of records to read.")
]
