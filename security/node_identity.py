"""The node that a certificate names: the URI ``stele:node:<id>`` among its alternative names.

A caller whose certificate names a node may register, vote and send heartbeats as this node only. A
certificate without such a name is not bound to a node.
"""

from __future__ import annotations

import re
from typing import Final

from cryptography import x509

_NODE_URI: Final = re.compile(r"stele:node:(0|[1-9][0-9]{0,9})")


def node_uri(node_id: int) -> str:
    """The alternative name that binds a certificate to a node."""
    return f"stele:node:{node_id}"


def named_nodes(certificate: x509.Certificate) -> frozenset[int]:
    """The ids of the nodes that a certificate names; usually none or one."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    matches = (_NODE_URI.fullmatch(uri) for uri in uris)
    return frozenset(int(match[1]) for match in matches if match is not None)
