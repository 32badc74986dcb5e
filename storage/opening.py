"""Opening a log, including its recovery."""

from __future__ import annotations

from stele.ids import TopicPartition
from stele.world import Clock
from storage.checkpoints import PARTITION_METADATA_FILE
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.log_types import LogOwner
from storage.recovered import recover_log
from storage.recovery import RecoveryRequest
from storage.steps import Steps, finish
from world.disk import Disk


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    clock: Clock,
    *,
    key: TopicPartition,
    start_offset: int = 0,
    recovery_point: int = 0,
    high_watermark_checkpoint: int = 0,
    dropped_end: int = 0,
    clean_shutdown: bool = False,
    topic_id: bytes | None = None,
    owner: LogOwner[PartitionLog] | None = None,
) -> PartitionLog:
    """Open and recover the log in ``directory``, which is created if it is absent.

    This waits for the device. Otherwise it is as ``opening_log``.
    """
    return finish(
        disk,
        opening_log(
            disk,
            directory,
            config,
            clock,
            key=key,
            start_offset=start_offset,
            recovery_point=recovery_point,
            high_watermark_checkpoint=high_watermark_checkpoint,
            dropped_end=dropped_end,
            clean_shutdown=clean_shutdown,
            topic_id=topic_id,
            owner=owner,
        ),
    )


def opening_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    clock: Clock,
    *,
    key: TopicPartition,
    start_offset: int = 0,
    recovery_point: int = 0,
    high_watermark_checkpoint: int = 0,
    dropped_end: int = 0,
    clean_shutdown: bool = False,
    topic_id: bytes | None = None,
    owner: LogOwner[PartitionLog] | None = None,
) -> Steps[PartitionLog]:
    """As ``open_log``, in steps (``storage.steps``).

    The four offsets are those of the checkpoint files, or 0. After an unclean shutdown everything
    from the recovery point's segment on is checked and synced. After a clean one it writes nothing
    that the next opening must know of. Raises CorruptLogError, LogDirectoryError, OSError.
    """
    is_new = not disk.exists(directory)
    disk.make_directory(directory)
    request = RecoveryRequest(
        disk,
        directory,
        start_offset=start_offset,
        recovery_point=recovery_point,
        high_watermark=high_watermark_checkpoint,
        clean_shutdown=clean_shutdown,
        index_interval_bytes=config.index_interval_bytes,
        now_ms=clock.time_ms(),
    )
    recovered = yield from recover_log(request)
    log = PartitionLog(
        disk,
        directory,
        config,
        clock,
        recovered,
        key=key,
        topic_id=topic_id,
        owner=owner,
        dropped_end=dropped_end,
    )
    if not clean_shutdown:
        log.ease_recovery()
    if is_new or log.end_offset == log.segments.bases[0]:
        # The first group makes the directory entries of the log and of its segment durable, and its
        # topic id.
        parent = directory.rpartition("/")[0]
        metadata = f"{directory}/{PARTITION_METADATA_FILE}"
        log.require_founded(parent, directory, metadata, log.segments.active.path)
    return log
