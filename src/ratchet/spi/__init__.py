"""What can be replaced: Protocols whose docstrings are the contract."""
