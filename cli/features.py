"""``stele features …``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    Bootstrap,
    Json,
    Local,
    RequestId,
    Timeout,
    request_id_of,
)
from cli.output import UsageError, key_values, print_json, print_table

if TYPE_CHECKING:
    from stele.admin.features import SupportedLevels, UpgradeType
    from stele.sync import Admin

METADATA_VERSION = "metadata.version"

app = typer.Typer(
    cls=CommandList,
    help="Feature levels: what formats the cluster has agreed to use.",
    no_args_is_help=True,
)

Metadata = Annotated[
    int | None, typer.Option("--metadata", metavar="LEVEL", help=f"Level of {METADATA_VERSION}.")
]
Feature = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="Level of a feature; may be repeated."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the request and change nothing.")]


@app.command()
def describe(
    as_json: Json = False,
    local: Local = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show the finalized level of each feature, and which levels each node supports."""
    with connect(bootstrap, timeout) as admin:
        features = admin.describe_features(linearizable=not local)
    if as_json:
        print_json(features)
        return
    print_table(
        ("FEATURE", "FINALIZED", "SUPPORTED BY ALL", "BROKERS", "CONTROLLERS"),
        [
            (
                each.name,
                each.level or None,
                _levels(each.min_level, each.max_level),
                _nodes(each.brokers),
                _nodes(each.controllers),
            )
            for each in features
        ],
    )


@app.command()
def upgrade(
    metadata: Metadata = None,
    feature: Feature = None,
    highest: Annotated[
        bool, typer.Option("--highest", help="Every feature, as high as all nodes support.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Finalize higher levels. Older versions of Stele cannot join after that."""
    from stele.admin.features import UPGRADE, highest_levels

    if highest:
        if metadata is not None or feature:
            raise UsageError("give --highest, or levels by --metadata and --feature")
        with connect(bootstrap, timeout) as admin:
            levels = highest_levels(admin.describe_features())
        if not levels:
            nothing = "every feature is at the highest level that all nodes support"
            print("[]" if as_json else nothing)
            return
    else:
        levels = _wanted(metadata, feature)
    _update(levels, UPGRADE, dry_run, as_json, request_id, connect(bootstrap, timeout))


@app.command()
def downgrade(
    metadata: Metadata = None,
    feature: Feature = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow a downgrade that loses metadata.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Finalize lower levels. Refused if metadata would be lost."""
    from stele.admin.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE

    levels = _wanted(metadata, feature)
    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    _update(levels, kind, dry_run, as_json, request_id, connect(bootstrap, timeout))


@app.command()
def disable(
    feature: Annotated[
        list[str],
        typer.Option("--feature", metavar="NAME", help="A feature; may be repeated."),
    ],
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow a downgrade that loses metadata.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    request_id: RequestId = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Disable features."""
    from stele.admin.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE

    kind = UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE
    levels = dict.fromkeys(feature, 0)
    _update(levels, kind, dry_run, as_json, request_id, connect(bootstrap, timeout))


def _update(
    levels: dict[str, int],
    kind: UpgradeType,
    dry_run: bool,
    as_json: bool,
    request_id: str | None,
    admin: Admin,
) -> None:
    with admin:
        updated = admin.update_features(
            levels, kind, validate_only=dry_run, request_id=request_id_of(request_id)
        )
    if as_json:
        print_json(updated)
        return
    for each in updated:
        if each.level == each.level_before:
            print(f"{each.name} is at {each.level}: nothing to change")
        else:
            done = "would go" if dry_run else "went"
            again = ", when this request came first" if each.already_done else ""
            print(f"{each.name} {done} from {each.level_before} to {each.level}{again}")


def _wanted(metadata: int | None, features: list[str] | None) -> dict[str, int]:
    levels = {}
    for name, level in key_values(features or (), "--feature").items():
        if not (level.isascii() and level.isdecimal()):
            raise UsageError(f"--feature {name}={level}: the level is a whole number")
        levels[name] = int(level)
    if metadata is not None:
        if levels.get(METADATA_VERSION, metadata) != metadata:
            raise UsageError(f"--metadata and --feature give {METADATA_VERSION} two levels")
        levels[METADATA_VERSION] = metadata
    if not levels:
        raise UsageError(
            "nothing to change: give --metadata LEVEL, --feature NAME=LEVEL or, with upgrade, "
            "--highest"
        )
    return levels


def _nodes(supported: Iterable[SupportedLevels]) -> str:
    return ", ".join(
        f"{known.node_id}: {_levels(known.min_level, known.max_level)}" for known in supported
    )


def _levels(low: int, high: int) -> str | None:
    if high < max(low, 1):
        return None
    return f"{low} to {high}" if low < high else f"{low}"
