"""Making a failure small: the shortest beginning of the storm that still leads to one."""

from __future__ import annotations

from dataclasses import replace

from chaos.sim.runs.swarm import Outcome, run


def shortest(failed: Outcome) -> Outcome:
    """Bisect over the number of acts; the outcome, with its transcript, of the least that fails.

    One act fewer does not fail. (With fewer still it may: failures need not be monotonic.)
    """
    passes, fails = -1, failed.acts
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if run(replace(failed.plan, acts=middle)).ok:
            passes = middle
        else:
            fails = middle
    return run(replace(failed.plan, acts=fails), keep_transcript=True)
