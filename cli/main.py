"""The ``stele`` command.

Modules of commands import little at their top. A command imports its needs when it runs, so that
``--help`` is quick and a node imports only what a node needs.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cli import (
    acls,
    certs,
    clients,
    cluster,
    console,
    consume,
    demo_command,
    doctor,
    drill,
    explain,
    features,
    formatting,
    log_dump,
    produce,
    profile_commands,
    quorum,
    quotas,
    reassign,
    server,
    share,
    sim,
    size,
    spark,
    telemetry,
    tokens,
    topics,
    transactions,
    users,
    verify,
    whatif,
)
from cli.command_list import CommandList
from cli.dev import commands as dev
from cli.group import commands as group
from cli.importing.command import import_command
from cli.interruption import EXIT_INTERRUPTED, EXIT_TERMINATED, terminable
from cli.output import CommandError, UsageError, note
from cli.perf import commands as perf
from cli.top.command import top
from stele.errors import SteleError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

# Typer's own copy of click or the package: whichever it is, its errors descend from this.
_UsageError: type[Exception] = next(
    each
    for each in typer.BadParameter.__mro__
    if issubclass(each, Exception) and each.__name__ == "ClickException"
)

app = typer.Typer(
    cls=CommandList,
    name="stele",
    help="Stele: a replicated, partitioned commit log.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("format")(formatting.format_command)
app.command("server")(server.server)
app.add_typer(dev.app, name="dev")
app.add_typer(topics.app, name="topic")
app.add_typer(reassign.app, name="reassign")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(share.app, name="share")
app.add_typer(transactions.app, name="transaction")
app.add_typer(acls.app, name="acls")
app.add_typer(certs.app, name="certs")
app.add_typer(profile_commands.app, name="profile")
app.add_typer(cluster.cluster_app, name="cluster")
app.add_typer(users.app, name="users")
app.command("clients")(clients.clients)
app.add_typer(quotas.app, name="quotas")
app.add_typer(telemetry.app, name="telemetry")
app.add_typer(tokens.app, name="tokens")
app.command("console")(console.console)
app.command("doctor")(doctor.doctor)
app.command("top")(top)
app.add_typer(quorum.quorum_app, name="quorum")
app.add_typer(features.app, name="features")
app.add_typer(explain.app, name="explain")
app.command("whatif")(whatif.whatif)
app.add_typer(log_dump.app, name="log")
app.add_typer(perf.app, name="perf")
app.add_typer(verify.app, name="verify")
app.command("import")(import_command)
app.command("size")(size.size)
app.command("demo")(demo_command.demo)
app.command("sim")(sim.sim)
app.add_typer(drill.app, name="drill")
app.add_typer(spark.app, name="spark")


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    wanted: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version."),
    ] = False,
) -> None:
    """Stele: a replicated, partitioned commit log."""


@app.command()
def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Print the version, and the commit where it is known."""
    import platform

    import stele
    from cli.commit import known_commit
    from cli.output import print_json
    from stele.wire.native import READER

    commit, python = known_commit(), platform.python_version()
    if as_json:
        versions = {"stele": stele.__version__, "commit": commit, "python": python}
        print_json({**versions, "records": READER})
    else:
        known = "" if commit is None else f"commit {commit}, "
        print(f"stele {stele.__version__} ({known}Python {python})")
        print(f"records are read by: {READER}")


def run(arguments: Sequence[str]) -> int:
    """One invocation; returns the exit code. An error is one line on standard error."""
    try:
        result = app(args=list(arguments), prog_name="stele", standalone_mode=False)
        code = result if isinstance(result, int) else EXIT_OK
        sys.stdout.flush()
    except _UsageError as error:
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
            print(message)
            return EXIT_USAGE
        return _failed(message, EXIT_USAGE)
    except UsageError as error:
        return _failed(str(error), EXIT_USAGE)
    except (CommandError, SteleError) as error:
        return _failed(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # The reader of our output has closed it. The interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except OSError as error:
        return _failed(_said(error), EXIT_FAILED)
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return code


def _said(error: OSError) -> str:
    """Without the number that Python puts before it."""
    if error.strerror is None or error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {error.strerror}"


def _failed(message: str, code: int) -> int:
    note("stele: " + " ".join(message.split()))
    return code


def main() -> None:
    # A client logs warnings of failures that it also raises as errors: they are shown once.
    logging.getLogger("stele").addHandler(logging.NullHandler())
    # A consumer leaves its group, for example. Nodes have handlers of their own.
    with terminable() as termination:
        code = run(sys.argv[1:])
    if termination.has_come:  # Typer gives every interruption the exit code of Ctrl-C
        code = EXIT_TERMINATED
    # Another Ctrl-C ends what is left to clear away, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    main()
