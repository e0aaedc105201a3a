"""
A store behind a codec: values are encoded on their way in and decoded on their way out, whatever store it is.

Enter with `store`: `SealedStore` has the methods through which values pass. `values` says what is sealed in each kind of value, and
`seals` does it for one text ([decision 19](docs/decisions/0019-values-are-sealed-around-the-store.md)).
"""

from ratchet.stores.sealed.store import SealedStore, sealed

__all__ = ["SealedStore", "sealed"]
