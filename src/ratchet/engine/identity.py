"""Who this node is, right now."""

from __future__ import annotations

import os
import re
import socket
from uuid import UUID

from ratchet.model.identifiers import IdSource


class NodeIdentity:
    """
    The node's id, which changes when the node has to start over.

    A node that was declared dead while it was alive comes back as a new incarnation: everything
    written under the old id is fenced off.
    """

    def __init__(self, ids: IdSource, name: str | None = None) -> None:
        self._ids = ids
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self.name = name or f"{self.host}:{self.pid}"
        self.node_id = self._new_id()
        #: From then on (monotonic) others may take this node for dead; each beat that goes through moves it.
        self.late_after = float("inf")

    def renew(self) -> str:
        """Become a new incarnation."""
        self.node_id = self._new_id()
        return self.node_id

    def _new_id(self) -> str:
        readable = re.sub(r"[^A-Za-z0-9_.:-]", "-", self.name)[:80]
        return f"{readable}-{short(self._ids())}"


def short(identifier: UUID) -> str:
    """The random end of an id: enough to tell incarnations of one name apart."""
    return identifier.hex[-12:]
