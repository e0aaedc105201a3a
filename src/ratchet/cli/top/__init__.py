"""
``ratchet top``: what the cluster does, on a terminal, as it happens.

Enter through `command.top`. `snapshot` asks the store, `watcher` does so again and again beside the terminal, `screen` draws
what was found, `keys` reads what a person types, and `session` puts them together.
"""
