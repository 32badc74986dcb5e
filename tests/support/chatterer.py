"""A process that prints its argument, and says goodbye at SIGTERM: ``python -m``."""

from __future__ import annotations

import json
import signal
import sys


def main(word: str) -> None:
    # Blocked from the beginning, a signal that comes early is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print(json.dumps(word), flush=True)
    signal.sigwait([signal.SIGTERM])
    print(json.dumps("goodbye"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
