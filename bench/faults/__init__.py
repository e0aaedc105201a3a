"""The same faults on Ratchet and on its peers; `python -m bench.faults --help` says how."""
