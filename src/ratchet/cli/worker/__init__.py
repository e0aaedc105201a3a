"""
``ratchet worker``: runs jobs until it is told to stop.

Enter through `command.worker`. It starts a `Supervisor`, a process without user code, which keeps child
processes alive and beats for them (`heartbeats`). Each child (`child`) imports the app and runs its node.
Both sides talk over two pipes (`messages`).
"""
