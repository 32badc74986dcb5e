"""``stele sim``: the options; the simulator is in ``chaos.sim``, its use in ``cli.sim_run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.output import CommandError

Seeds = Annotated[
    str | None,
    typer.Option("--seeds", help="FIRST..LAST, or one seed; 0..99, with --mutants 0..39."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Run this one seed.")]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=1, help="Virtual seconds of faults: 60, with --mutants 30."),
]
Faults = Annotated[str, typer.Option("--faults", help="all, none, or kinds: kill,pause,…")]
Load = Annotated[
    str,
    typer.Option(
        "--load",
        help=(
            "drawn: cluster and work from the seed; light: 3+3 nodes, little work; rare: as light, "
            "with operations that are seldom used."
        ),
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; one for each core.")]
Trace = Annotated[bool, typer.Option("--trace", help="With --seed: print everything that happens.")]
Mutants = Annotated[
    bool, typer.Option("--mutants", help="Plant known bugs, and show whether they are caught.")
]
Only = Annotated[
    str, typer.Option("--only", help="With --mutants: only bugs with this text in their name.")
]
Record = Annotated[
    bool,
    typer.Option(
        "--record",
        help=(
            "With --mutants: record for the tests which seeds caught them. Without --seeds, a bug "
            "keeps its recorded seed if this still catches it."
        ),
    ),
]
Directory = Annotated[
    Path, typer.Option("--dir", help="Directory of results.jsonl and of transcripts of failures.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the results in --dir.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def sim(
    seeds: Seeds = None,
    seed: Seed = None,
    seconds: Seconds = None,
    faults: Faults = "all",
    load: Load = "drawn",
    jobs: Jobs = None,
    trace: Trace = False,
    mutants: Mutants = False,
    only: Only = "",
    record: Record = False,
    directory: Directory = Path("sim-results"),
    resume: Resume = False,
    as_json: AsJson = False,
) -> int:
    """Run whole clusters of the real code on virtual time, with faults, each from one seed."""
    from chaos.sim.runs.swarm import Plan, parse_faults
    from chaos.sim.work.load import LoadKind
    from cli import sim_run
    from cli.interruption import exit_code_of, terminable

    _check_combination(trace=trace, seed=seed, mutants=mutants, record=record, load=load)
    try:
        kinds = parse_faults(faults)
        span = _span(seeds or ("0..39" if mutants else "0..99"))
    except ValueError as error:
        raise CommandError(str(error)) from None
    if seed is not None:
        span = range(seed, seed + 1)
    jobs = jobs or os.cpu_count() or 1
    order = Plan(0, seconds or 60.0, kinds, load=LoadKind(load))
    try:
        with terminable():
            if mutants:
                return sim_run.mutants(
                    span,
                    seconds or 30.0,
                    only,
                    jobs,
                    as_json=as_json,
                    note_down=record,
                    keep_catches=record and seeds is None,
                )
            if trace:
                return sim_run.trace(span.start, order)
            return sim_run.seeds(span, order, jobs, directory, resume=resume, as_json=as_json)
    except KeyboardInterrupt as interruption:
        return exit_code_of(interruption)


def _check_combination(
    *, trace: bool, seed: int | None, mutants: bool, record: bool, load: str
) -> None:
    if trace and (seed is None or mutants):
        raise typer.BadParameter("--trace goes with --seed")
    if record and not mutants:
        raise typer.BadParameter("--record goes with --mutants")
    from chaos.sim.work.load import LoadKind

    if load not in list(LoadKind):
        raise typer.BadParameter(f"--load {load!r} is none of {', '.join(LoadKind)}")


def _span(text: str) -> range:
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not last.isdecimal()):
        raise ValueError(f"--seeds {text!r} is not of the form FIRST..LAST")
    span = range(int(first), int(last if dots else first) + 1)
    if not span:
        raise ValueError(f"--seeds {text!r} is empty")
    return span
