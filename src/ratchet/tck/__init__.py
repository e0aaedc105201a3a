"""
The conformance kit: what every store must do, as tests that its author runs.

Write a `Harness` for the store, then either line runs every contract against it and ends with
"N of N contracts, S skipped" and a reason for each skip::

    ratchet tck pkg.module:Harness
    pytest -p ratchet.tck.plugin --pyargs ratchet.tck --ratchet-harness pkg.module:Harness

The kit sees `ratchet.model` and `ratchet.spi` only, and needs pytest and hypothesis. What a store
cannot do it declares in its `Capabilities`; nothing else skips a contract.
"""

from ratchet.tck.harness import Harness

__all__ = ["Harness"]
