"""Compresses produced batches anew if ``compression.type`` is not the producer's codec."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import HEADER_SIZE, BatchHeader
from stele.wire.compression import Compression
from stele.wire.recompression import recompress, with_body
from stele.world import Buffer
from world.compute import Compute

logger = logging.getLogger(__name__)

_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""By compression.type. With ``producer`` each batch keeps its codec."""


class Recompressed(NamedTuple):
    """A batch in the codec of its topic."""

    batch: bytearray
    header: BatchHeader


Done = Callable[[Recompressed | ApiError], None]


def target_of(config: TopicConfig, header: BatchHeader) -> Compression | None:
    """The codec that a batch must get; None if it has the right one. As in Kafka, a batch that has
    the codec already keeps it, whatever its level."""
    if config.compression_type == "producer":
        return None
    target = _CODECS[config.compression_type]
    return None if header.compression is target else target


class Recompression:
    """Has batches compressed anew, off the event loop."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self,
        config: TopicConfig,
        batch: Buffer,
        header: BatchHeader,
        target: Compression,
        done: Done,
    ) -> None:
        """Call ``done`` with the batch in the codec ``target``, or with the reason why not."""
        task = asyncio.get_running_loop().create_task(
            self._run(config, batch, header, target, done), name="recompress"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self,
        config: TopicConfig,
        batch: Buffer,
        header: BatchHeader,
        target: Compression,
        done: Done,
    ) -> None:
        done(await self._outcome(config, batch, header, target))

    async def _outcome(
        self, config: TopicConfig, batch: Buffer, header: BatchHeader, target: Compression
    ) -> Recompressed | ApiError:
        try:
            return await self._recompressed(config, batch, header, target)
        except ApiError as error:
            return error
        except OSError as error:
            # Producers send it again.
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"it was not compressed anew: {error}")
        except Exception:
            logger.exception("a batch cannot be compressed anew")
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _recompressed(
        self, config: TopicConfig, batch: Buffer, header: BatchHeader, target: Compression
    ) -> Recompressed:
        body = bytes(memoryview(batch)[HEADER_SIZE:])
        room = config.max_message_bytes - HEADER_SIZE
        size, packed = await self._compute.call(
            recompress, int(header.compression), int(target), _level(config, target), body, room
        )
        if size > room:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {size + HEADER_SIZE} bytes with compression.type="
                f"{config.compression_type}, max.message.bytes is {config.max_message_bytes}",
            )
        return Recompressed(*with_body(batch, header, target, packed))


def _level(config: TopicConfig, target: Compression) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(target)
