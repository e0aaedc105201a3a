"""How the house is built: what the import contracts of `make check` cannot say."""
