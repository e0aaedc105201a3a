"""The contracts: one file or folder per noun of `ratchet.spi.store`, and one per property that spans them all."""
