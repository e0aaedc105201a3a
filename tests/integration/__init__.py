"""The public API from end to end, the same on every store; mostly on a manual clock, without threads."""
