"""The documentation is true: its examples run, its generated pages are up to date, its numbers come from runs that are kept."""
