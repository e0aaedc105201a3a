"""
The command line, for operators: everything behind ``ratchet``.

Enter through `main`, which runs the app of `app.py`. ``commands/`` look at jobs and change them, through a
`Scheduler` that runs nothing; ``worker/`` runs jobs; ``demo/`` shows both within half a minute.
"""


def main() -> None:
    """Entry point of the command ``ratchet``."""
    # Imported here: a worker's child process is in this package too, and needs neither typer nor the other commands.
    from ratchet.cli.app import app

    app(prog_name="ratchet")
