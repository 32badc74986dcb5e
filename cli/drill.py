"""``stele drill``: failover drills on a cluster of their own, their reports and their proof."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.command_list import CommandList
from cli.options import Json
from cli.output import CommandError, UsageError, did_you_mean, note, print_json, print_table

if TYPE_CHECKING:
    from chaos.drills.campaign import OpenCluster
    from chaos.drills.chain.chain import ChainOptions
    from chaos.drills.drill import Drill
    from chaos.drills.history import History
    from chaos.drills.verdict import Verdict

app = typer.Typer(
    cls=CommandList,
    help="Failover drills: a workload, a fault, the recovery, a verdict.",
    no_args_is_help=True,
)

DEFAULT_DIRECTORY = Path("drill-results")
Directory = Annotated[Path, typer.Option("--dir", help="Directory of histories and reports.")]
All = Annotated[bool, typer.Option("--all", help="Run every drill, one after the other.")]
Cluster = Annotated[
    str, typer.Option("--cluster", help="process: processes of this machine; compose: containers.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed that chooses the victims.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        min=1,
        help="Seconds during which drills with a chain or a queue kill processes (default 60).",
    ),
]
PerS = Annotated[
    float | None,
    typer.Option("--per-s", min=1, help="Records per second into the chain (default 1000)."),
]
Clients = Annotated[
    str | None, typer.Option("--clients", help="Client of the chain's hops: stele or confluent.")
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names of drills (stele drill list shows them)."),
]


@app.command("list")
def list_drills(as_json: Json = False) -> None:
    """Show all drills, with what they do and their negative controls."""
    from chaos.drills.registry import DRILLS

    if as_json:
        print_json(
            [
                {"name": each.name, "what": each.what, "control": _control_of(each)}
                for each in DRILLS
            ]
        )
        return
    rows = [(each.name, each.what, _control_of(each)) for each in DRILLS]
    print_table(("DRILL", "WHAT", "NEGATIVE CONTROL"), rows)


def _control_of(drill: Drill) -> str:
    return drill.control.what if drill.control else "faults planted in its history"


@app.command("run")
def run(
    names: Names = None,
    everything: All = False,
    times: Annotated[int, typer.Option("--times", min=1, help="Number of runs of each drill.")] = 1,
    cluster: Cluster = "process",
    seed: Seed = 1,
    seconds: Seconds = None,
    per_s: PerS = None,
    clients: Clients = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: Json = False,
) -> int:
    """Run drills, each on a new cluster. Exit status 1: one of them was red."""
    from chaos.drills.campaign import PAGE_FILE, perform

    chosen, opened = _chosen(names, everything, cluster), _opened(cluster)
    chain = _chain(chosen, seconds, per_s, clients)

    async def all_of_them() -> list[tuple[str, History, Verdict]]:
        done = []
        for drill in chosen:
            for number in range(times):
                name = drill.name if times == 1 else f"{drill.name}-{number + 1}"
                note(f"stele: {name}: {drill.what}")
                place = directory / name
                outcome = await perform(drill, place, seed + number, opened, chain=chain)
                done.append((name, outcome.history, outcome.verdict))
                _tell(name, outcome.verdict, place / PAGE_FILE)
        return done

    return _summary(_run(all_of_them), as_json)


@app.command("report")
def report(directory: Directory = DEFAULT_DIRECTORY, as_json: Json = False) -> int:
    """Judge the recorded histories anew, write their reports again, show all in one table."""
    from chaos.drills.campaign import recorded, write_reports

    found = recorded(directory)
    if not found:
        raise CommandError(f"there is no history below {directory}: run stele drill run first")
    for place, history, verdict in found:
        write_reports(history, verdict, place)
    rows = [(place.name, history, verdict) for place, history, verdict in found]
    return _summary(rows, as_json)


@app.command("check")
def check(
    file: Annotated[
        Path, typer.Argument(metavar="HISTORY", help="A history.jsonl of an earlier run.")
    ],
    as_json: Json = False,
) -> int:
    """Derive the verdict from a history alone. Exit status 1: it is red."""
    from chaos.drills.history import read_history
    from chaos.drills.report import as_json as json_of
    from chaos.drills.verdict import judge

    history = read_history(file)
    verdict = judge(history)
    if as_json:
        print_json(json_of(history, verdict))
    else:
        rows = [("ok" if each.holds else "NO", each.name, each.told) for each in verdict.checks]
        print_table(("", "CHECK", "SEEN"), rows)
        print(f"{history.header.drill}: {_word(verdict)}")
    return 0 if verdict.green else 1


@app.command("self-test")
def self_test(
    names: Names = None,
    everything: All = False,
    cluster: Cluster = "process",
    seed: Seed = 1,
    seconds: Seconds = None,
    per_s: PerS = None,
    clients: Clients = None,
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: Json = False,
) -> int:
    """Run the negative controls, which must turn red. Exit status 1: one of them did not."""
    from chaos.drills.campaign import prove

    chosen, opened = _chosen(names, everything, cluster), _opened(cluster)
    chain = _chain(chosen, seconds, per_s, clients)

    async def all_of_them() -> list[tuple[str, bool, str]]:
        done = []
        for drill in chosen:
            note(f"stele: {drill.name}: {_control_of(drill)}")
            place = directory / f"{drill.name}-control"
            holds, told = await prove(drill, place, seed, opened, chain)
            note(f"stele: {drill.name}: {'proven' if holds else 'NOT PROVEN'}: {told}")
            done.append((drill.name, holds, told))
        return done

    done = _run(all_of_them)
    if as_json:
        print_json([{"drill": name, "proven": holds, "seen": told} for name, holds, told in done])
    else:
        rows = [(name, "proven" if holds else "NOT PROVEN", told) for name, holds, told in done]
        print_table(("DRILL", "CONTROL", "SEEN"), rows)
    return 0 if all(holds for _, holds, _ in done) else 1


# ------------------------------------------------------------------------------------ parts


def _chosen(names: list[str] | None, everything: bool, cluster: str) -> list[Drill]:
    """The drills named, or all that this kind of cluster can do. Raises CommandError."""
    from chaos.drills.registry import by_name

    known = by_name()
    if everything:
        if names:
            raise UsageError("give names of drills or --all, not both")
        able = []
        for drill in known.values():
            if reason := _inability(drill, cluster):
                note(f"stele: {drill.name} is left out: {reason}")
            else:
                able.append(drill)
        return able
    if not names:
        raise UsageError("which drill? Name some, or give --all; stele drill list shows them")
    for name in names:
        if name not in known:
            raise CommandError(f"there is no drill {name!r}.{did_you_mean(name, known)}")
    drills = [known[name] for name in names]
    for drill in drills:
        if reason := _inability(drill, cluster):
            raise CommandError(f"{drill.name}: {reason}")
    return drills


def _inability(drill: Drill, cluster: str) -> str | None:
    """Why the drill cannot be run on such a cluster here, or None."""
    from chaos.drills.needs import ABLE, Need
    from chaos.drills.process_faults import unavailable

    needs = [each for each in Need if each in drill.needs - ABLE.get(cluster, frozenset())]
    if needs:
        able = [kind for kind, can in ABLE.items() if drill.needs <= can]
        return f"it {needs[0].value}, which needs --cluster {' or '.join(able)}"
    return unavailable(drill.needs)


def _chain(
    chosen: list[Drill], seconds: float | None, per_s: float | None, clients: str | None
) -> ChainOptions:
    """Raises CommandError."""
    from chaos.drills.chain.chain import CLIENTS, ChainOptions

    given = {"seconds": seconds, "per_s": per_s, "clients": clients}
    fields = {name: value for name, value in given.items() if value is not None}
    has_chain = any(drill.expectations.chain for drill in chosen)
    has_queue = any(drill.expectations.delivery_limit for drill in chosen)
    if seconds is not None and not (has_chain or has_queue):
        raise UsageError("--seconds: only for exactly-once-chain and queue")
    of_chain = [name for name in fields if name != "seconds"]
    if of_chain and not has_chain:
        names = ", ".join("--" + name.replace("_", "-") for name in of_chain)
        raise UsageError(f"{names}: only for exactly-once-chain")
    if clients is not None and clients not in CLIENTS:
        raise UsageError(f"--clients {clients!r} is neither stele nor confluent")
    return ChainOptions(**fields)  # type: ignore[arg-type]


def _opened(cluster: str) -> OpenCluster:
    """Raises CommandError."""
    if cluster == "process":
        from chaos.drills.campaign import processes

        return processes
    if cluster != "compose":
        raise UsageError(f"--cluster {cluster!r} is neither process nor compose")
    try:
        from chaos.drills.compose import containers
    except ModuleNotFoundError as error:  # only the drills of containers need Docker's client
        if error.name != "docker":
            raise
        raise CommandError("--cluster compose needs Docker's client: pip install docker") from None
    return containers


def _run(doing: Callable[[], Coroutine[Any, Any, list[Any]]]) -> list[Any]:
    """Run it on a loop of its own. A signal ends it in good order: clusters are stopped."""
    import asyncio

    from cli.interruption import terminable

    with terminable(), _quiet_clients():
        return asyncio.run(doing())


@contextmanager
def _quiet_clients() -> Iterator[None]:
    """Clients log nothing meanwhile: what they would log of a fault is in the history."""
    import logging

    clients = logging.getLogger("stele")
    before = clients.level
    clients.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        clients.setLevel(before)


def _tell(name: str, verdict: Verdict, page: Path) -> None:
    note(f"stele: {name}: {_word(verdict)}, {page}")
    for broken in verdict.broken:
        note(f"stele: {name}: not so: {broken.name} ({broken.told})")


def _summary(done: list[tuple[str, History, Verdict]], as_json: bool) -> int:
    from chaos.drills.report import as_json as json_of

    if as_json:
        print_json([json_of(history, verdict) for _, history, verdict in done])
    else:
        columns = ("DRILL", "VERDICT", "ACKED", "LOST", "TWICE", "WRITE OUTAGE", "READ OUTAGE")
        more = ("DETECTED", "RECOVERED", "ELECTIONS")
        print_table((*columns, *more), [_row(name, verdict) for name, _, verdict in done])
    is_within = _tell_distributions(done, quietly=as_json)
    return 0 if is_within and all(verdict.green for _, _, verdict in done) else 1


def _tell_distributions(done: list[tuple[str, History, Verdict]], *, quietly: bool) -> bool:
    """Where a drill was run several times, hold its percentiles against its budgets."""
    from chaos.drills.distribution import distributions
    from chaos.drills.report import seconds

    found = distributions((history, verdict) for _, history, verdict in done)
    found = [each for each in found if each.runs > 1]
    if found and not quietly:
        rows = []
        for each in found:
            tell = str if each.measure == "zombie acknowledgements" else seconds
            values = (each.median, each.p99, each.most)
            budget = "-" if each.budget is None else tell(each.budget)
            word = "ok" if each.is_within else "MISSED"
            rows.append((each.drill, each.measure, each.runs, *map(tell, values), budget, word))
        print()
        print_table(("DRILL", "MEASURE", "RUNS", "HALF", "99 %", "ALL", "BUDGET", ""), rows)
    return all(each.is_within for each in found)


def _row(name: str, verdict: Verdict) -> tuple[object, ...]:
    from chaos.drills.report import longest, seconds

    found, times = verdict.findings, verdict.times
    return (
        name,
        _word(verdict),
        found.acknowledged,
        len(found.lost),
        len(found.duplicated),
        seconds(longest(times.writes)),
        seconds(longest(times.reads)),
        seconds(times.detected_ms),
        seconds(times.recovered_ms),
        times.elections + times.quorum_elections,
    )


def _word(verdict: Verdict) -> str:
    return "green" if verdict.green else "RED"
