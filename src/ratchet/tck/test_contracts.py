"""Where pytest finds the contracts when it collects ``ratchet.tck``."""

from ratchet.tck.suite import contract_classes

globals().update(contract_classes())
