"""Runs of planted bugs in forks of one process, which has imported the source once.

``python -m chaos.sim.runs.mutants.forks`` is that process. It has one thread and starts no loop,
so a fork misses nothing. ``Forks`` orders runs on its standard input. A fork plants the bug, runs
the seeds and ends.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from chaos.sim.runs.mutants.mutant import Edit, Mutant, MutantError
from chaos.sim.runs.mutants.planting import Functions, plant
from chaos.sim.runs.swarm import Plan, RunOutcome, run, silent

_ENDED = "ended"  # a line with the status of the fork; a line before it is an outcome
_REFUSED = "refused"  # a line with the reason why the bug cannot be planted


def environment(root: Path) -> dict[str, str]:
    """The environment of a process that runs the source under ``root``. The bugs are planted in
    Python, so Python does the work of the compiled module, too."""
    return {
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "STELE_NATIVE": "0",
    }


class Forks:
    """Processes that run planted bugs of the source under ``root``, one at a time.

    They are in a session of their own, so the terminal's Ctrl-C does not reach them.
    """

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.sim.runs.mutants.forks"],
            cwd=root,
            env=environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, mutant: Mutant, seeds: Sequence[int], order: Plan) -> Iterator[RunOutcome]:
        """Run ``order`` with each of the seeds, up to the first one that fails. Read all outcomes.

        Raises MutantError if the bug cannot be planted, and RuntimeError if a process has died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        ordered = {
            "name": mutant.name,
            "edits": mutant.edits,
            "seeds": [*seeds],
            "plan": order.to_json(),
        }
        try:
            print(json.dumps(ordered), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # there are no lines either
        for line in self._process.stdout:
            told = json.loads(line)
            if _REFUSED in told:
                raise MutantError(told[_REFUSED])
            if _ENDED not in told:
                yield RunOutcome.from_json(line)
            elif told[_ENDED] == 0:
                return
            else:
                raise RuntimeError(f"a fork for {mutant.name!r} ended with status {told[_ENDED]}")
        raise RuntimeError(f"the process that forks for {mutant.name!r} has ended")

    def end(self) -> None:
        """Kill them. A run that is under way fails. Idempotent, and may be called by any thread."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End them, when no thread waits for their outcomes any more. Nothing runs after it."""
        self.end()
        try:
            with self._process:
                pass  # it closes its pipes
        except BrokenPipeError:
            pass  # the last order was never read


def main() -> None:
    # If the reader of its output is gone, the process ends without a message.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    root = Path.cwd()
    functions = Functions(_files_under(root))
    # Imported objects stay for good. The collector need not scan them, and the forks share them.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(line, root, functions)
        _, status = os.waitpid(child, 0)
        print(json.dumps({_ENDED: os.waitstatus_to_exitcode(status)}), flush=True)


def _files_under(root: Path) -> Collection[str]:
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    return {file for file in files if file is not None and Path(file).is_relative_to(root)}


def _live(line: str, root: Path, functions: Functions) -> None:
    """The fork's whole life."""
    status = 1
    try:
        order = json.loads(line)
        mutant = Mutant(order["name"], tuple(Edit(*each) for each in order["edits"]))
        try:
            plant(mutant, root, functions)
        except MutantError as error:
            print(json.dumps({_REFUSED: str(error)}), flush=True)
        else:
            _run(order["seeds"], Plan.from_json(order["plan"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run(seeds: Sequence[int], plan: Plan) -> None:
    spent_s = time.process_time()
    with silent():
        for seed in seeds:
            outcome = run(replace(plan, seed=seed))
            now_s = time.process_time()
            outcome.cpu_s, spent_s = now_s - spent_s, now_s
            print(outcome.to_json(), flush=True)
            if not outcome.ok:
                return


if __name__ == "__main__":
    main()
