"""The operating system's limits of a process."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def raise_open_file_limit() -> int:
    """Raise RLIMIT_NOFILE to the hard limit, log it, and return what it is now.

    Shells and service managers give 1,024 by default: that is for programs that use select(2).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            limit = hard
        except (OSError, ValueError) as error:  # macOS has a lower one that it does not tell
            logger.warning("the limit of open files stays %d: %s", soft, error)
    logger.info(
        "open files: at most %d (it was %d); every connection and every partition takes one",
        limit,
        soft,
    )
    return limit
