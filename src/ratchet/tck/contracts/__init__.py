"""
The contracts: one file or folder per noun of `ratchet.spi.store`, and one per property that spans them all.

Each contract is a test method that takes a `Harness`. `ratchet.tck.suite.contract_classes` finds the
classes, and ``contracts.txt`` lists every contract as noun, class and method: a file or folder here is that noun.
"""
