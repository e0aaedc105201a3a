"""The kit itself: its list, its command, its account, and that it finds what it looks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.tck.fixtures import load_harness
from ratchet.tck.harness import Harness, missing_capabilities, needs
from ratchet.tck.reference import Reference, ReferenceJob
from ratchet.tck.suite import contract_classes, differences, listed_contracts, written_contracts
from tests.tck.memory import MemoryHarness

ROOT = Path(__file__).parents[2]


def run_kit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the kit as a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )


class TestList:
    def test_it_names_exactly_what_is_written(self) -> None:
        """No contract without a line, no line without a contract."""
        assert differences() == []
        assert listed_contracts() == sorted(listed_contracts())

    def test_every_contract_says_what_must_hold(self) -> None:
        """A failing contract is explained by its docstring."""
        for cls in contract_classes().values():
            for name, method in vars(cls).items():
                if name.startswith("test_"):
                    assert method.__doc__, f"{cls.__name__}.{name} has no docstring"

    def test_every_interface_has_its_contracts(self) -> None:
        """One file or folder of contracts per file of the SPI."""
        nouns = {path.stem for path in (ROOT / "src/ratchet/spi/store").glob("*.py")} - {"__init__", "store"}
        assert nouns <= {name.partition(".")[0] for name in written_contracts()}

    def test_every_method_of_the_spi_is_used(self) -> None:
        """No promise of a store is left untested: each method's name appears in some contract."""
        from ratchet.spi.store import JobStore

        kit = ROOT / "src/ratchet/tck"
        sources = [*(kit / "contracts").rglob("*.py"), kit / "steps.py", kit / "losses.py"]
        text = "\n".join(path.read_text() for path in sources)
        methods = {
            name
            for cls in JobStore.__mro__
            if cls.__module__.startswith("ratchet.spi")
            for name in vars(cls)
            if not name.startswith("_") and callable(getattr(cls, name))
        }
        assert len(methods) > 80
        assert {name for name in methods if f".{name}(" not in text and f".{name}," not in text} == set()

    def test_each_store_runs_all_of_it(self) -> None:
        """The modules that test our stores hold every class of contracts."""
        from tests.tck import test_memory, test_postgresql, test_sqlite_file, test_sqlite_memory

        for module in (test_memory, test_sqlite_file, test_sqlite_memory, test_postgresql):
            assert contract_classes().items() <= vars(module).items(), module.__name__


class TestReference:
    def test_a_deleted_job_leaves_its_key_to_code_that_still_runs(self) -> None:
        """Canceled while it ran, then deleted: as in every store, the key is free when the code has ended."""
        steps = MemoryHarness()
        steps.store = steps.open()
        claim = steps.running(business_key="k")
        steps.shutdown()
        reference = Reference(now=steps.now)
        job = ReferenceJob(job_id=claim.job_id, priority=2, due=steps.now, key="k")
        reference.submit(job)
        reference.started_by(claim)
        assert reference.cancel(job)
        assert reference.delete(job)
        assert reference.holder("k") == claim.job_id


class TestCapabilities:
    def test_a_contract_asks_for_what_it_needs(self) -> None:
        """Marks of class and method add up; what the store declares is not missing."""

        @needs("within", "server")
        def contract() -> None: ...

        @needs("survives_restart")
        class Contracts: ...

        missing = set(missing_capabilities(MemoryHarness(), Contracts, contract))
        assert missing == {"server", "survives_restart"}

    def test_an_unknown_capability_is_an_error(self) -> None:
        """A misspelled mark does not turn into a silent skip."""

        @needs("no_such_thing")
        def contract() -> None: ...

        with pytest.raises(AttributeError):
            list(missing_capabilities(MemoryHarness(), contract))

    def test_a_harness_with_a_server_must_reach_it(self) -> None:
        """`server` without `via` is told so."""

        class Half(MemoryHarness):
            server = ("127.0.0.1", 1)

        with pytest.raises(TypeError, match="via"):
            Half().via("127.0.0.1", 1)
        assert issubclass(Half, Harness)


class TestRunner:
    def test_a_store_that_fulfils_everything(self) -> None:
        """Exit code 0, the account, and a reason for each skip."""
        script = (
            "import sys; from ratchet.tck.runner import run; sys.exit(run('tests.tck.memory:MemoryHarness'))"
        )
        done = run_kit("-c", script)
        assert done.returncode == 0, done.stdout
        total = len(listed_contracts())
        assert done.stdout.rstrip().endswith(f"\n{total} of {total} contracts, 11 skipped")
        assert "TestUnreachable.test_nobody_listens: the store declares no server" in done.stdout

    def test_the_pytest_line(self) -> None:
        """The same through pytest itself; a run that was narrowed is not complete, and fails."""
        line = ["-m", "pytest", "-p", "ratchet.tck.plugin", "-q", "--pyargs", "ratchet.tck"]
        done = run_kit(*line, "--ratchet-harness", "tests.tck.memory:MemoryHarness", "-k", "TestReschedule")
        assert "not executed: audit.TestAuditLog.test_filters" in done.stdout
        assert f"5 of {len(listed_contracts())} contracts, 0 skipped" in done.stdout
        assert done.returncode == 1

    @pytest.mark.parametrize(
        "path", ["tests.tck.memory", "no.such:Harness", "tests.tck.memory:Nobody", "json:loads"]
    )
    def test_a_harness_that_cannot_be_had(self, path: str) -> None:
        """The message names the path and what is wrong with it."""
        with pytest.raises(pytest.UsageError, match=path):
            load_harness(path)

    def test_a_broken_store_is_found(self) -> None:
        """A store that forgets its fence fails, and the account names the contracts."""
        script = (
            "import sys; from ratchet.tck.runner import run; "
            "sys.exit(run('tests.tck.broken:ForgetfulHarness', ['-k', 'TestProgress or TestStaleClaim']))"
        )
        done = run_kit("-c", script)
        assert done.returncode == 1
        assert "failed: fencing.TestStaleClaim.test_a_lost_run_changes_nothing" in done.stdout
