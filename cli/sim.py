"""``stele sim``: the options; the simulator is in ``chaos.sim``, its use in ``cli.sim_run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.output import CommandError


def sim(
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="FIRST..LAST, or one seed; 0..99, with --mutants 0..39."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Run this one seed.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, help="Virtual seconds of faults: 60, with --mutants 30."),
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", help="all, none, or kinds: kill,pause,…")
    ] = "all",
    load: Annotated[
        str,
        typer.Option(
            "--load", help="drawn: cluster and work from the seed; light: 3+3 nodes, little work."
        ),
    ] = "drawn",
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; one for each core.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="With --seed: print all that happens.")
    ] = False,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Plant known bugs: are they caught?")
    ] = False,
    only: Annotated[
        str, typer.Option("--only", help="With --mutants: those with this in their name.")
    ] = "",
    record: Annotated[
        bool, typer.Option("--record", help="With --mutants: note for the tests what caught them.")
    ] = False,
    directory: Annotated[
        Path, typer.Option("--dir", help="For results.jsonl and transcripts of failures.")
    ] = Path("sim-results"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the results that --dir holds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> int:
    """Whole clusters of the real code on virtual time, with faults, each from one seed."""
    from chaos.sim.runs.swarm import Plan, parse_faults
    from cli import sim_run
    from cli.interruption import exit_code_of, terminable

    if (trace and seed is None) or (trace and mutants):
        raise typer.BadParameter("--trace goes with --seed")
    if record and not mutants:
        raise typer.BadParameter("--record goes with --mutants")
    if load not in ("drawn", "light"):
        raise typer.BadParameter(f"--load {load!r} is neither drawn nor light")
    try:
        kinds = parse_faults(faults)
        span = _span(seeds or ("0..39" if mutants else "0..99"))
        if seed is not None:
            span = range(seed, seed + 1)
    except ValueError as error:
        raise CommandError(str(error)) from None
    jobs = jobs or os.cpu_count() or 1
    order = Plan(0, seconds or 60.0, kinds, light=load == "light")
    try:
        with terminable():
            if mutants:
                return sim_run.mutants(
                    span, seconds or 30.0, only, jobs, as_json=as_json, note_down=record
                )
            if trace:
                return sim_run.trace(span.start, order)
            return sim_run.seeds(span, order, jobs, directory, resume=resume, as_json=as_json)
    except KeyboardInterrupt as interruption:
        return exit_code_of(interruption)


def _span(text: str) -> range:
    first, dots, last = text.partition("..")
    if not first.isdecimal() or (dots and not last.isdecimal()):
        raise ValueError(f"--seeds {text!r} is not of the form FIRST..LAST")
    span = range(int(first), int(last if dots else first) + 1)
    if not span:
        raise ValueError(f"--seeds {text!r} is empty")
    return span
