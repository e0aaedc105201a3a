"""Functions of the script that was started: stored under the name that others import them by."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
import sys
from pathlib import Path

from ratchet import Scheduler

with open(Path(__file__).with_name("loaded.txt"), "a") as log:
    log.write(__name__ + "\\n")

scheduler = Scheduler(f"sqlite:///{Path(__file__).with_name('shop.db')}", allow=ALLOW)


class Declined(Exception):
    pass


@scheduler.job(max_retries=3, no_retry_for=(Declined,))
def charge(number):
    if number < 0:
        raise Declined(number)
    return number + 1


@scheduler.job(lane="process")
def grind(number):
    return charge.enqueue(number).submit().job().target


@scheduler.job(name="shop.refund")
def refund(number):
    return -number


def plain(number):
    return number


def main():
    with scheduler:
        handles = [target.enqueue(1).submit() for target in (charge, refund)]
        if ALLOW:
            handles.append(scheduler.enqueue_now(plain, 1))
        for handle in handles:
            handle.result(timeout=30)
            print(handle.job().target)
        if "grind" in sys.argv:
            print(grind.enqueue(7).submit().result(timeout=60))
        if "declined" in sys.argv:
            declined = charge.enqueue(-1).submit()
            declined.wait(timeout=30)
            job = declined.job()
            print(job.attempts, job.error_type)


if __name__ == "__main__":
    main()
"""


def run(folder: Path, *arguments: str, code: str | None = None) -> list[str]:
    """What Python prints when it is started in *folder*, line by line."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        input=code,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def write(path: Path, *, allow: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"ALLOW = {None if allow is None else [allow]!r}\n" + SHOP)
    return path


def test_a_script_stores_the_name_that_a_worker_imports(tmp_path: Path) -> None:
    """``python shop.py`` stores ``shop:charge`` and runs it itself; a declared name stays; it is loaded once."""
    write(tmp_path / "shop.py")
    assert run(tmp_path, "shop.py") == ["shop:charge", "shop.refund"]
    assert (tmp_path / "loaded.txt").read_text().split() == ["__main__"]


@pytest.mark.parametrize(
    ("file", "arguments", "expected"),
    [
        ("shop.py", ["-m", "shop"], "shop"),
        ("corner/store.py", ["-m", "corner.store"], "corner.store"),
        ("corner/store.py", ["corner/store.py"], "store"),
        ("corner/__main__.py", ["-m", "corner"], "__main__"),
        ("corner/__main__.py", ["corner"], "__main__"),
        ("my-shop.py", ["my-shop.py"], "__main__"),
        ("other/codecs.py", ["other/codecs.py"], "__main__"),  # Python has imported its own before
    ],
    ids=["-m", "-m_package", "file", "-m_main", "folder", "no_module", "shadowed"],
)
def test_the_name_is_the_one_that_can_be_imported(
    tmp_path: Path, file: str, arguments: list[str], expected: str
) -> None:
    """Where the same file cannot be imported, the script keeps ``__main__``; nothing is imported to find out."""
    write(tmp_path / file)
    (tmp_path / file).with_name("__init__.py").touch()
    assert run(tmp_path, *arguments)[0] == f"{expected}:charge"


def test_functions_that_are_allowed_and_not_declared(tmp_path: Path) -> None:
    """``allow`` may name the module, or ``__main__`` as before; both store the name that a worker imports."""
    for allow in ("shop", "__main__"):
        write(tmp_path / allow / "shop.py", allow=allow)
        assert run(tmp_path / allow, "shop.py")[-1] == "shop:plain"
        assert (tmp_path / allow / "loaded.txt").read_text().split() == ["__main__"]


def test_code_that_is_no_file_keeps_its_name(tmp_path: Path) -> None:
    """Standard input and ``-c`` have no module: the job runs on this script's node alone."""
    code = (
        "from ratchet import Scheduler\n"
        "scheduler = Scheduler('sqlite:///:memory:')\n"
        "@scheduler.job\n"
        "def charge(number): return number\n"
        "with scheduler:\n"
        "    handle = charge.enqueue(1).submit()\n"
        "    handle.result(timeout=30)\n"
        "    print(handle.job().target)\n"
    )
    assert run(tmp_path, "-c", code) == ["__main__:charge"]
    assert run(tmp_path, "-", code=code) == ["__main__:charge"]


@pytest.mark.slow
def test_the_process_lane_of_a_script(tmp_path: Path) -> None:
    """A child loads the script as ``__mp_main__``; it finds the function, and submits under the same name."""
    write(tmp_path / "shop.py")
    assert run(tmp_path, "shop.py", "grind")[-1] == "shop:charge"
    assert run(tmp_path, "-m", "shop", "grind")[-1] == "shop:charge"


def test_errors_of_a_script_are_known_by_the_same_name(tmp_path: Path) -> None:
    """``no_retry_for`` names a class of the script, which a worker knows under the module's name: one attempt."""
    write(tmp_path / "shop.py")
    assert run(tmp_path, "shop.py", "declined")[-1] == "1 Declined"
    look = (
        "import shop; from ratchet import JobFilter, JobStatus\n"
        "(job,) = shop.scheduler.jobs.find(JobFilter(statuses=[JobStatus.FAILED]))\n"
        "shop.scheduler.retry_job(job.id)\n"
        "with shop.scheduler: shop.scheduler.handle(job.id).wait(timeout=30)\n"
        "job = shop.scheduler.jobs.get(job.id)\n"
        "print(job.attempts, job.error_type)\n"
    )
    assert run(tmp_path, "-c", look) == ["1 Declined"]


def test_a_job_that_version_0_1_0_stored_still_runs(tmp_path: Path) -> None:
    """It stored ``__main__:charge``; the script goes on to run that."""
    write(tmp_path / "shop.py")
    code = (
        "import shop, msgspec\n"
        "builder = shop.charge.enqueue(4)\n"
        "spec = builder._step.checked(shop.scheduler.backend).spec(\n"
        "    shop.scheduler.backend.ids(), shop.scheduler.backend.now())\n"
        "builder._disarm()\n"
        "spec = msgspec.structs.replace(spec, target='__main__:charge')\n"
        "shop.scheduler.store.insert([spec], now=shop.scheduler.backend.now())\n"
    )
    run(tmp_path, "-c", code)
    run(tmp_path, "shop.py")
    look = (
        "import shop; from ratchet import JobFilter\n"
        "(job,) = shop.scheduler.jobs.find(JobFilter(targets=['__main__:charge']))\n"
        "print(job.status, job.result)\n"
    )
    assert run(tmp_path, "-c", look) == ["SUCCEEDED 5"]
