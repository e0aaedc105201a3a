"""
The command line, for operators: everything behind ``ratchet``.

Enter through `main`, which runs the app of `app.py`. ``commands/`` look at jobs and change them, through a
`Scheduler` that runs nothing; ``worker/`` runs jobs; ``demo/`` shows both within half a minute.
"""

import atexit
import gc
import sys


def main() -> None:
    """Entry point of the command ``ratchet``."""
    # Importing makes many objects and no garbage: looking for it at the usual pace, and once more at the end, costs a tenth
    # of a short command.
    gc.disable()
    atexit.register(gc.freeze)
    # Imported here: a worker's child process is in this package too, and needs neither typer nor the other commands.
    from ratchet.cli.app import app_for

    app = app_for(sys.argv[1:])
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    app(prog_name="ratchet")
