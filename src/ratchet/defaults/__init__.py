"""Stock implementations of the replaceable parts in ``ratchet.spi``."""
