"""The contracts: one file per noun of `ratchet.spi.store`, and one per property that spans them all."""
