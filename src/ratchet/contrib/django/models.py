"""No models: the tables are Ratchet's own. Django tells only apps that have this module that a migration is over."""
