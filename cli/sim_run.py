"""What ``stele sim`` does: many seeds over several processes, planted bugs, one seed traced."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chaos.sim.runs.campaign import CampaignError, Results, Summary, run_seeds, source_digest
from chaos.sim.runs.mutants.catalogue import MUTANTS
from chaos.sim.runs.mutants.harness import (
    Verdict,
    check_true_source,
    hunt,
    hunt_again,
    hunting,
    record,
    recorded,
    runs_of_others,
    shorten,
    source_tree,
)
from chaos.sim.runs.mutants.mutant import Mutant
from chaos.sim.runs.shrink import shortest
from chaos.sim.runs.swarm import Plan, RunOutcome, run, silent
from cli.interruption import exit_code_of
from cli.output import CommandError, note, print_json, print_table

Item = TypeVar("Item")
Result = TypeVar("Result")

EXIT_OK, EXIT_FAILED = 0, 1
RESULTS_FILE = "results.jsonl"
_TOLD_EVERY_S = 30.0  # where there is no terminal to move a bar on
_SHRUNK_MAX = 3  # failures that are looked at closely


def trace(seed: int, order: Plan) -> int:
    with silent():
        outcome = run(replace(order, seed=seed), keep_transcript=True)
    for line in outcome.transcript:
        print(line)
    for violation in outcome.violations:
        note(f"violation {violation}")
    note(f"transcript {outcome.digest}")
    return EXIT_OK if outcome.ok else EXIT_FAILED


# --------------------------------------------------------------------------------- many seeds


def seeds(
    span: range, order: Plan, jobs: int, directory: Path, *, resume: bool, as_json: bool
) -> int:
    """Every outcome is in the results file as soon as it is there; Ctrl-C and SIGTERM sum up
    those."""
    began_s = time.perf_counter()
    interruption: KeyboardInterrupt | None = None
    try:
        with source_tree() as root:
            results = Results(directory / RESULTS_FILE, order, source_digest(root))
            with closing(results):
                done = [each for each in results.open(resume=resume) if each.plan.seed in span]
                interruption = _run_rest(root, order, span, jobs, done, results, quiet=as_json)
                if interruption is not None:
                    done = [each for each in results.held() if each.plan.seed in span]
    except CampaignError as error:
        raise CommandError(str(error)) from None
    done.sort(key=lambda each: each.plan.seed)
    failed = [each for each in done if not each.ok]
    shown = [] if interruption else failed[:_SHRUNK_MAX]
    failures = [_explain(each, directory) for each in shown]
    whole = Summary.of(done)
    neglected = whole.neglected(order.faults)
    summary = {**whole.rows(), "seconds": round(time.perf_counter() - began_s, 1)}
    if as_json:
        interrupted = interruption is not None
        print_json(
            {
                "summary": summary,
                "laws": whole.looks,
                "failures": failures,
                "interrupted": interrupted,
            }
        )
    else:
        print_table(["what", "how much"], [(key, f"{value:,}") for key, value in summary.items()])
        print_table(
            ["law", "looks", "needed in"],
            [(name, f"{looks:,}", proof) for name, looks, proof in whole.laws()],
        )
        for failure in failures:
            for key, value in failure.items():
                print(f"{key}: {value}")
    if interruption is not None:
        note(f"interrupted: {len(done)} of {len(span)} seeds; --resume goes on")
        return exit_code_of(interruption)
    if neglected:
        note(f"{len(done)} runs prove little, for they never saw: {', '.join(neglected)}")
    return EXIT_FAILED if failed or neglected else EXIT_OK


def _run_rest(
    root: Path,
    order: Plan,
    span: range,
    jobs: int,
    done: list[RunOutcome],
    results: Results,
    *,
    quiet: bool,
) -> KeyboardInterrupt | None:
    """Add to ``done`` what is missing; what interrupted that, if anything did."""
    missing = set(span) - {each.plan.seed for each in done}
    try:
        with (
            _progress("seeds", len(span), quiet=quiet, begun=len(done)) as advance,
            closing(run_seeds(root, order, missing, jobs)) as outcomes,
        ):
            for outcome in outcomes:
                results.add(outcome)
                done.append(outcome)
                if not outcome.ok:
                    note(f"seed {outcome.plan.seed} failed: {outcome.violations[0]}")
                advance()
    except KeyboardInterrupt as interruption:
        return interruption
    return None


def _in_parallel(
    items: Sequence[Item],
    do: Callable[[Item], Iterator[Result]],
    jobs: int,
    end: Callable[[], None],
) -> Generator[Result, None, None]:
    """Yield the results of the items as they come; each of several threads takes the next item.

    Close the generator to end early: it calls ``end``, which must make the running items fail soon.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    results: queue.SimpleQueue[list[Result] | Exception | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            while True:
                for result in do(waiting.get_nowait()):
                    results.put([result])
        except queue.Empty:
            results.put(None)
        except Exception as error:
            results.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    try:
        for thread in threads:
            thread.start()
        while jobs:
            result = results.get()
            if result is None:
                jobs -= 1
            elif isinstance(result, Exception):
                raise CommandError(str(result))
            else:
                yield from result
    finally:
        end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _explain(outcome: RunOutcome, directory: Path) -> dict[str, object]:
    """The shortest way to the failure, and a file that tells it."""
    with silent():
        short = shortest(outcome)
    if short.ok:  # a run is that of its seed, so this is another program
        why = "it does not fail again: the source was changed since the run"
        return {
            "seed": outcome.plan.seed,
            "violation": outcome.violations[0],
            "acts": why,
            "transcript": "",
        }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"seed-{outcome.plan.seed}.txt"
    lines = [f"violation {text}" for text in short.violations] + short.transcript
    file.write_text("\n".join(lines) + "\n")
    return {
        "seed": outcome.plan.seed,
        "violation": short.violations[0],
        "acts": f"{short.plan.acts} of {outcome.acts} are enough",
        "transcript": str(file),
    }


# -------------------------------------------------------------------------------- planted bugs


def mutants(
    span: range,
    seconds: float,
    only: str,
    jobs: int,
    *,
    as_json: bool,
    note_down: bool,
    keep_catches: bool = False,
) -> int:
    """``keep_catches``: a bug that its recorded seed still catches is not hunted with others. Any
    other bug is first hunted with seeds that are recorded already."""
    chosen = [each for each in MUTANTS if only in each.name]
    if not chosen:
        raise CommandError(f"no planted bug has {only!r} in its name")
    verdicts: list[Verdict] = []
    catches = recorded() if keep_catches else {}
    kept = set[str]()  # their entries stay as they are
    with hunting() as hunters, _progress("planted bugs", len(chosen), quiet=as_json) as advance:

        def hunted(mutant: Mutant) -> Iterator[Verdict]:
            verdict = hunt_again(hunters, mutant, catches.get(mutant.name))
            if verdict.caught:
                kept.add(mutant.name)
            else:
                verdict = hunt_anew(mutant)
            check_true_source(hunters, verdict)
            yield verdict

        def hunt_anew(mutant: Mutant) -> Verdict:
            for catch in runs_of_others(mutant, MUTANTS, catches):
                if (verdict := hunt_again(hunters, mutant, catch)).caught:
                    return verdict
            verdict = hunt(hunters, mutant, span, seconds=seconds)
            if note_down:
                shorten(hunters, verdict)
            return verdict

        with closing(_in_parallel(chosen, hunted, jobs, hunters.end)) as hunts:
            for verdict in hunts:
                verdicts.append(verdict)
                advance()
    verdicts.sort(key=lambda verdict: chosen.index(verdict.mutant))
    if note_down:
        record([each for each in verdicts if each.mutant.name not in kept])
    rows = [
        (
            each.mutant.name,
            _result(each),
            each.seeds,
            round(each.real_s, 1),
            each.caught_by.violations[0][:120] if each.caught_by else "",
        )
        for each in verdicts
    ]
    columns = ("mutant", "result", "seeds", "seconds", "by")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
        print(f"{sum(each.caught for each in verdicts)} of {len(verdicts)} caught")
        _note_bad_runs(verdicts)
    return EXIT_OK if all(each.caught for each in verdicts) else EXIT_FAILED


def _note_bad_runs(verdicts: Sequence[Verdict]) -> None:
    """Name the runs that fail without a planted bug, too."""
    for plan in dict.fromkeys(each.true_source.plan for each in verdicts if each.true_source):
        note(
            f"seed {plan.seed} fails without a planted bug, too, so it shows none: stele sim "
            f"--seed {plan.seed} --seconds {plan.seconds:g} --faults {','.join(plan.faults)} "
            f"--load {plan.load}"
        )


def _result(verdict: Verdict) -> str:
    if verdict.true_source is not None:
        return "FAILS ANYWAY"
    return "caught" if verdict.caught else "NOT CAUGHT"


@contextmanager
def _progress(
    what: str, total: int, *, quiet: bool, begun: int = 0
) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; else a line now and then."""
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet or not sys.stderr.isatty(),
    )
    task = bar.add_task(what, total=total, completed=begun)
    done, told_s = begun, time.perf_counter()

    def advance() -> None:
        nonlocal done, told_s
        done += 1
        bar.advance(task)
        if bar.disable and not quiet and time.perf_counter() - told_s > _TOLD_EVERY_S:
            told_s = time.perf_counter()
            note(f"{done} of {total} {what}")

    with bar:
        yield advance
