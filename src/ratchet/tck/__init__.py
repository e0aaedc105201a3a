"""
The conformance kit: what every store must do, as tests that its author runs.

Write a `Harness` for the store. Then either of these lines runs every contract against it, and
ends with "N of N contracts, S skipped" and a reason for each skip::

    ratchet tck pkg.module:Harness
    pytest -p ratchet.tck.plugin --pyargs ratchet.tck --ratchet-harness pkg.module:Harness

The contracts are in `ratchet.tck.contracts`, `runner` is the entry, and `steps` holds the steps that
contracts are written in. The kit imports only `ratchet.model` and `ratchet.spi`, and needs pytest and
hypothesis. A contract is skipped only if it needs something that the store does not declare in its
`Capabilities`, or if the harness has no way to lose a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.tck.harness import Harness

__all__ = ["Harness"]


def __getattr__(name: str) -> object:
    # pytest imports this package wherever Ratchet is installed (see `plugin`), so the import must be cheap
    if name == "Harness":
        from ratchet.tck.harness import Harness

        return Harness
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
