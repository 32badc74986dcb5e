"""Shrinks a failure to a short beginning of the storm that still fails."""

from __future__ import annotations

from dataclasses import replace

from chaos.sim.runs.swarm import RunOutcome, run


def shortest(failed: RunOutcome) -> RunOutcome:
    """Bisect over the number of acts. Returns the outcome, with transcript, of a short failing run.

    One act fewer does not fail. (Even fewer may fail again: failures need not be monotonic.)
    """
    passes, fails = -1, failed.acts
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if run(replace(failed.plan, acts=middle)).ok:
            passes = middle
        else:
            fails = middle
    return run(replace(failed.plan, acts=fails), keep_transcript=True)
