"""What a supervisor and its children say to each other survives the pipe, whole or not at all."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from ratchet.cli.worker.messages import (
    Command,
    Drain,
    Failed,
    Leaving,
    LineReader,
    Pulse,
    Quit,
    Ready,
    Report,
    decode_command,
    decode_report,
    encoded,
    given_options,
)
from ratchet.model.options import Options

REPORTS: list[Report] = [
    Ready(node_id="n", url="sqlite:///x", options={"queues": ["a"]}, heartbeat=2.0, drain_timeout=30.0),
    Pulse(node_id="n", overdue=1.5),
    Failed(message="two\nlines", passing=True),
    Leaving(reason="why"),
]
COMMANDS: list[Command] = [Drain(timeout=1.5), Drain(), Quit()]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_reports_come_back_as_they_were(report: Report) -> None:
    """A report is one line and is read as the same value."""
    line = encoded(report)
    assert line.count(b"\n") == 1
    assert decode_report(line.strip()) == report


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_commands_come_back_as_they_were(command: Command) -> None:
    """A command is one line and is read as the same value."""
    assert decode_command(encoded(command).strip()) == command


def test_lines_are_given_out_when_they_are_complete() -> None:
    """Half a line waits for its rest; the end of the pipe is noticed."""
    reading, writing = os.pipe()
    try:
        reader = LineReader(reading)
        assert list(reader.lines()) == []
        os.write(writing, b"one\ntw")
        assert list(reader.lines()) == [b"one"]
        assert not reader.ended
        os.write(writing, b"o\n")
        os.close(writing)
        assert list(reader.lines()) == [b"two"]
        assert reader.ended
    finally:
        os.close(reading)


def test_given_options_make_the_same_options_again() -> None:
    """The supervisor opens the store with the options of the app, which reach it as JSON."""
    import json

    options = Options(heartbeat=timedelta(seconds=1.5), queues=["a", "b"], schema="jobs", auto_migrate=True)
    again = Options(**json.loads(json.dumps(given_options(options))))
    assert again == options
    assert again.given == options.given
