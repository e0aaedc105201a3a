"""The command line: ``ratchet worker``, ``ratchet jobs``, and the rest."""


def main() -> None:
    """Entry point of the command ``ratchet``."""
    # Imported here: a worker's child lives in this package and needs neither typer nor the other commands.
    from ratchet.cli.app import app

    app(prog_name="ratchet")
