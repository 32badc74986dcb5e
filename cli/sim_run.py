"""What ``stele sim`` does: many seeds over several processes, planted bugs, one seed traced."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from chaos.sim.mutants.catalogue import MUTANTS
from chaos.sim.mutants.harness import (
    Verdict,
    hunt,
    outcomes,
    record,
    source_tree,
    worker,
)
from chaos.sim.shrink import shortest
from chaos.sim.swarm import Outcome, Plan, run, silent
from cli.output import CommandError, note, print_json, print_table

Item = TypeVar("Item")
Result = TypeVar("Result")

EXIT_OK, EXIT_FAILED = 0, 1
_BLOCK = 8  # seeds that a process takes at a time
_SHRUNK_MAX = 3  # failures that are looked at closely


def trace(seed: int, seconds: float, faults: tuple[str, ...]) -> int:
    with silent():
        outcome = run(Plan(seed, seconds, faults), keep_transcript=True)
    for line in outcome.transcript:
        print(line)
    for violation in outcome.violations:
        note(f"violation {violation}")
    note(f"transcript {outcome.digest}")
    return EXIT_OK if outcome.ok else EXIT_FAILED


# --------------------------------------------------------------------------------- many seeds


def seeds(
    span: range,
    seconds: float,
    faults: tuple[str, ...],
    jobs: int,
    directory: Path,
    *,
    as_json: bool,
) -> int:
    results: list[Outcome] = []
    with source_tree() as root, _progress("seeds", len(span), quiet=as_json) as advance:
        for outcome in _parallel(root, span, seconds, faults, jobs):
            results.append(outcome)
            advance()
    results.sort(key=lambda each: each.plan.seed)
    failures = [_explain(each, directory) for each in _failed(results)[:_SHRUNK_MAX]]
    summary = _summary(results)
    if as_json:
        print_json({"summary": summary, "failures": failures})
    else:
        print_table(["what", "how much"], [(key, f"{value:,}") for key, value in summary.items()])
        for failure in failures:
            for key, value in failure.items():
                print(f"{key}: {value}")
    return EXIT_FAILED if failures else EXIT_OK


def _failed(results: list[Outcome]) -> list[Outcome]:
    return [each for each in results if not each.ok]


def _parallel(
    root: Path, span: range, seconds: float, faults: tuple[str, ...], jobs: int
) -> Iterator[Outcome]:
    """Outcomes as they come, from so many processes."""
    starts = range(span.start, span.stop, _BLOCK)
    blocks = [range(start, min(start + _BLOCK, span.stop)) for start in starts]
    return _in_parallel(
        blocks,
        lambda block: outcomes(worker(root, block, seconds=seconds, faults=faults)),
        jobs,
    )


def _in_parallel(
    items: Sequence[Item], do: Callable[[Item], Iterator[Result]], jobs: int
) -> Iterator[Result]:
    """What comes of the items, as it comes; a thread each takes one after the other."""
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

    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    while jobs:
        result = results.get()
        if result is None:
            jobs -= 1
        elif isinstance(result, Exception):
            raise CommandError(str(result))
        else:
            yield from result


def _explain(outcome: Outcome, directory: Path) -> dict[str, object]:
    """The shortest way to the failure, and a file that tells it."""
    with silent():
        short = shortest(outcome)
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


def _summary(results: list[Outcome]) -> dict[str, int | float]:
    covered: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for outcome in results:
        covered.update(outcome.coverage)
        faults.update(outcome.faults)
    virtual_s = sum(each.virtual_s for each in results)
    real_s = sum(each.real_s for each in results)
    return {
        "seeds": len(results),
        "failed": len(_failed(results)),
        "virtual hours": round(virtual_s / 3600, 2),
        "speed-up per process": round(virtual_s / max(real_s, 1e-9), 1),
        **dict(sorted(covered.items())),
        **{f"fault {kind}": count for kind, count in sorted(faults.items())},
    }


# -------------------------------------------------------------------------------- planted bugs


def mutants(
    span: range, seconds: float, only: str, jobs: int, *, as_json: bool, note_down: bool
) -> int:
    chosen = [each for each in MUTANTS if only in each.name]
    if not chosen:
        raise CommandError(f"no planted bug has {only!r} in its name")
    verdicts: list[Verdict] = []
    with _progress("planted bugs", len(chosen), quiet=as_json) as advance:
        hunts = _in_parallel(chosen, lambda each: iter([hunt(each, span, seconds=seconds)]), jobs)
        for verdict in hunts:
            verdicts.append(verdict)
            advance()
    verdicts.sort(key=lambda verdict: chosen.index(verdict.mutant))
    if note_down:
        record(verdicts)
    rows = [
        (
            each.mutant.name,
            "caught" if each.caught else "NOT CAUGHT",
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
    return EXIT_OK if all(each.caught for each in verdicts) else EXIT_FAILED


@contextmanager
def _progress(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet,
    )
    task = bar.add_task(what, total=total)
    with bar:
        yield lambda: bar.advance(task)
