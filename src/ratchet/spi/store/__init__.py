"""
What a store must do: small Protocols, one file per noun, composed into `JobStore`.

To write a store, start with `store`: `JobStore` names every part, and `Capabilities` is what a store
declares about itself. `ratchet.tck` tests the result.
"""

from ratchet.spi.store.sending import SendingStore, Sent
from ratchet.spi.store.store import Capabilities, JobStore, StoreLifecycle

__all__ = ["Capabilities", "JobStore", "SendingStore", "Sent", "StoreLifecycle"]
