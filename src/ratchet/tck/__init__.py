"""
The conformance kit: what every store must do, as tests that its author runs.

Write a `Harness` for the store, then either line runs every contract against it and ends with
"N of N contracts, S skipped" and a reason for each skip::

    ratchet tck pkg.module:Harness
    pytest --pyargs ratchet.tck --ratchet-harness pkg.module:Harness

The kit sees `ratchet.model` and `ratchet.spi` only, and needs pytest and hypothesis. What a store
cannot do it declares in its `Capabilities`; nothing else skips a contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.tck.harness import Harness

__all__ = ["Harness"]


def __getattr__(name: str) -> object:
    # pytest imports this package wherever Ratchet is installed (see `plugin`), so it must cost nothing
    if name == "Harness":
        from ratchet.tck.harness import Harness

        return Harness
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
