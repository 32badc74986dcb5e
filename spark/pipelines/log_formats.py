"""Formats of system logs, and the columns that all of them have in common.

Column functions without streams. A line that fits no format of its service has null there, with the
reason in ``reason``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn


@dataclass(frozen=True, slots=True)
class Format:
    """The line format of a service. Groups of the pattern are counted from 1; 0: no group.

    ``year``: that of times without a year.
    """

    service: str
    pattern: str
    time: int
    time_format: str
    message: int
    level: int = 0
    component: int = 0
    year: int = 0


FORMATS = (
    Format(
        "apache",
        r"^\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] \[(\w+)\] (?:\[client [^\]]*\] )?(.*)$",
        1, "EEE MMM dd HH:mm:ss yyyy", 3, level=2,
    ),
    Format(
        "hadoop",
        r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) \[(.*?)\] ([\w.$]+): ?(.*)$",
        1, "yyyy-MM-dd HH:mm:ss,SSS", 5, level=2, component=4,
    ),
    Format(
        "hdfs",
        r"^(\d{6} \d{6}) \d+ (\w+) ([\w.$]+): (.*)$",
        1, "yyMMdd HHmmss", 4, level=2, component=3,
    ),
    Format(
        "linux",
        r"^(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ ([^\[:]+?)(?:\[\d+\])?: (.*)$",
        1, "yyyy MMM dd HH:mm:ss", 3, component=2, year=2005,
    ),
    Format(
        "openssh",
        r"^(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ (\w+)\[\d+\]: (.*)$",
        1, "yyyy MMM dd HH:mm:ss", 3, component=2, year=2015,
    ),
    Format(
        "openstack",
        r"^\S+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \d+ (\w+) (\S+) (.*)$",
        1, "yyyy-MM-dd HH:mm:ss.SSS", 4, level=2, component=3,
    ),
    Format(
        "spark",
        r"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (\w+) ([\w.$]+): (.*)$",
        1, "yy/MM/dd HH:mm:ss", 4, level=2, component=3,
    ),
    Format(
        "zookeeper",
        r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) - (\w+) +\[(.*?)\] - (.*)$",
        1, "yyyy-MM-dd HH:mm:ss,SSS", 4, level=2, component=3,
    ),
)  # fmt: skip

ERRORS = ("ERROR", "FATAL", "SEVERE", "CRITICAL")
_WORDS_OF_ERRORS = r"(?i)\b(error|fail(ed|ure)?|fatal|exception|invalid|refused)\b"

SCHEMA = "time TIMESTAMP, service STRING, level STRING, component STRING, message STRING"


def parsed(lines: DataFrame) -> DataFrame:
    """``service`` and ``line`` of a frame become the common columns and ``reason``, which is null
    if the line fits. Other columns stay."""
    service, line = fn.col("service"), fn.col("line")
    columns = {
        "time": _none("timestamp"),
        "level": _none(),
        "component": _none(),
        "message": _none(),
    }
    fits = fn.lit(False)
    for each in FORMATS:
        is_it = (service == each.service) & line.rlike(each.pattern)
        fits = fits | is_it
        for name, found in _columns(each, line).items():
            columns[name] = fn.when(is_it, found).otherwise(columns[name])
    known = service.isin([each.service for each in FORMATS])
    reason = (
        fn.when(line.isNull() | (fn.trim(line) == ""), "an empty line")
        .when(~known, fn.concat(fn.lit("no format is known for the service "), service))
        .when(~fits, fn.concat(fn.lit("not a line of the service "), service))
        .when(columns["time"].isNull(), "a time that cannot be read")
    )
    level = fn.upper(columns.pop("level"))
    said = fn.when(line.rlike(_WORDS_OF_ERRORS), "ERROR").otherwise("INFO")
    return lines.withColumns({**columns, "level": fn.coalesce(level, said), "reason": reason})


def _none(kind: str = "string") -> Column:
    return fn.lit(None).cast(kind)


def _columns(each: Format, line: Column) -> dict[str, Column]:
    def group(number: int) -> Column:
        return fn.regexp_extract(line, each.pattern, number) if number else _none()

    # A day of one digit has a blank before it, which no letter of a time's pattern stands for.
    moment = fn.regexp_replace(group(each.time), r"  (\d)", " 0$1")
    if each.year:
        moment = fn.concat_ws(" ", fn.lit(str(each.year)), moment)
    if each.time_format.startswith("EEE "):
        moment = fn.substring(moment, 5, 100)
    return {
        "time": fn.try_to_timestamp(moment, fn.lit(each.time_format.removeprefix("EEE "))),
        "level": group(each.level),
        "component": group(each.component),
        "message": group(each.message),
    }


def is_error(level: Column) -> Column:
    return level.isin(*ERRORS)


def template(message: Column) -> Column:
    """The message without what changes from line to line: numbers, addresses, paths, names of
    blocks."""
    rules = (
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b", "<id>"),
        (r"blk_-?\d+", "<block>"),
        (r"\d{1,3}(\.\d{1,3}){3}(:\d+)?", "<address>"),
        (r"(/[\w.\-]+)+/?", "<path>"),
        (r"0x[0-9a-fA-F]+", "<hex>"),
        (r"\b\w*\d\w*\b", "<n>"),
    )
    for pattern, word in rules:
        message = fn.regexp_replace(message, pattern, word)
    return message
