from __future__ import annotations

import os

# gRPC's core reads it once, when it is loaded: before any module of this room loads gRPC. Otherwise
# its informational lines, which strangers can cause, would stand in a node's log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
