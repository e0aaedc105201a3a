"""What a store must do: small Protocols, one file per noun, composed into `JobStore`."""

from ratchet.spi.store.sending import SendingStore, Sent
from ratchet.spi.store.store import Capabilities, JobStore, StoreLifecycle

__all__ = ["Capabilities", "JobStore", "SendingStore", "Sent", "StoreLifecycle"]
