"""The pages about frameworks, played by hand: files written, commands typed, in their order, by somebody who has nothing yet."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.django_project import TASKS_MODULE
from tests.support.waiting import until

PAGES = Path(__file__).parents[2] / "docs/how-to"
BLOCK = re.compile(r"```(py|console)\n(.*?)```", re.DOTALL)
#: Commands that go on until they are stopped.
SERVERS = ("uvicorn", "run", "worker")


class Newcomer:
    """Does what one section of a page says, in an empty folder."""

    def __init__(self, page: str, heading: str, folder: Path) -> None:
        text = (PAGES / page).read_text(encoding="utf-8")
        _, found, rest = text.partition(f"\n{heading}\n")
        assert found, f"{page} has no {heading!r}"
        level = heading.split(" ")[0]
        self.text = re.split(rf"\n{level} ", rest)[0]
        self.folder = folder
        self.port = _free_port()
        self.shown: dict[str, str] = {}
        self._running = ExitStack()

    def play(self) -> None:
        """Write each file and type each command, as they come."""
        for kind, block in BLOCK.findall(self.text):
            if kind == "py":
                self._write(block)
            else:
                for line in block.splitlines():
                    if line.startswith("$ "):
                        self._type(line.removeprefix("$ "))

    def _write(self, block: str) -> None:
        first, _, rest = block.partition("\n")
        name = first.removeprefix("# ").removeprefix("at the end of ")
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        before = path.read_text() if first.startswith("# at the end of ") else ""
        path.write_text(before + rest.replace("django.tasks", TASKS_MODULE))

    def _type(self, command: str) -> None:
        words = shlex.split(self._here(command), comments=True)
        if words[:2] == ["pip", "install"]:
            return  # the extras are installed; what each page needs is in its own extra
        if words[0] == "curl":
            self.shown[command] = self._request(words)
        elif words[0] == "uvicorn" or words[-1] in SERVERS:
            self._running.enter_context(self._server(words))
        elif "recurring" in words:
            until(
                lambda: self._succeeds(words), 60, what=f"{command} fails"
            )  # a worker that starts stores the schedules
        else:
            self.shown[command] = self.run(words)

    def _succeeds(self, words: list[str]) -> bool:
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment(), capture_output=True, timeout=90, check=False
        )
        return done.returncode == 0

    def run(self, words: list[str]) -> str:
        """What a command printed."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}"
        return done.stdout

    def sees(self, text: str, *, times: int, in_command: str) -> None:
        """Type a command of the page again until it shows *text* so often: a job takes its moment."""
        words = shlex.split(self._here(in_command), comments=True)
        until(lambda: self.run(words).count(text) >= times, 60, what=f"{in_command} never shows {text}")

    def stop(self) -> None:
        """Ctrl-C in every terminal."""
        self._running.close()

    def _here(self, command: str) -> str:
        return re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.port}", command)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
        bin_folder = Path(sys.executable).parent
        ports = dict.fromkeys(("UVICORN_PORT", "FLASK_RUN_PORT"), str(self.port))
        return {**kept, **ports, "PATH": f"{bin_folder}{os.pathsep}{kept.get('PATH', '')}"}

    def _request(self, words: list[str]) -> str:
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        answers: list[str] = []

        def answered() -> bool:
            try:
                with urllib.request.urlopen(urllib.request.Request(words[-1], method=method)) as answer:
                    answers.append(answer.read().decode())
            except urllib.error.HTTPError:
                raise
            except OSError:  # not yet
                return False
            return True

        until(answered, 60, what=f"nobody answers at {words[-1]}")
        return answers[0]

    @contextmanager
    def _server(self, words: list[str]) -> Iterator[Any]:
        log = self.folder / f"{words[-1].replace(':', '-')}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self._environment(), stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield process
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("page", "heading", "jobs", "command"),
    [
        ("web.md", "## FastAPI and Starlette", 1, "ratchet jobs list --url sqlite:///shop.db"),
        ("web.md", "## Flask", 1, "flask --app shop ratchet jobs list"),
        ("web.md", "## Litestar", 1, "ratchet jobs list --url sqlite:///shop.db"),
        ("django.md", "## From nothing to the first job", 3, "python manage.py ratchet jobs list"),
    ],
)
def test_a_page_from_its_first_line_to_the_first_job(
    page: str, heading: str, jobs: int, command: str, tmp_path: Path
) -> None:
    """Every file as it is written there, every command as it is typed there; at the end its jobs have run."""
    newcomer = Newcomer(page, heading, tmp_path)
    assert command in newcomer.text
    try:
        newcomer.play()
        newcomer.sees("SUCCEEDED", times=jobs, in_command=command)
    finally:
        newcomer.stop()
