"""How an address is written, for people and for gRPC."""

from __future__ import annotations


def address_text(host: str, port: int | str) -> str:
    """``host:port``. An IPv6 host gets brackets: without them its end could not be found."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
