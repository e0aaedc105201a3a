"""Ratchet and its peers, measured side by side. Run it with ``python -m bench`` or ``make bench``."""
