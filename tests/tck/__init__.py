"""The conformance kit on every store of ours, and on stores that are broken on purpose."""
