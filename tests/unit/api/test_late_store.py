"""A scheduler that is made without a store, and told later where its jobs are kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from ratchet import ConfigurationError, Options, Scheduler


def work() -> str:
    return "done"


def test_the_store_is_named_later(tmp_path: Path) -> None:
    """Jobs are declared first; `configure` names the store and the options, and then everything works."""
    scheduler = Scheduler(None)
    job = scheduler.job(work)
    assert repr(scheduler) == "Scheduler(no store yet)"
    scheduler.configure(f"sqlite:///{tmp_path / 'shop.db'}", options=Options(concurrency=3))
    assert scheduler.options.concurrency == 3
    with scheduler:
        assert job.enqueue().submit().result(timeout=20) == "done"
    assert (tmp_path / "shop.db").exists()
    assert repr(scheduler) == "Scheduler(sqlite)"
    scheduler.close()


def test_options_that_were_given_stay(tmp_path: Path) -> None:
    """Only the store is named: the options are those of the constructor."""
    scheduler = Scheduler(options=Options(poll_delay_min=timedelta(seconds=9)))
    scheduler.configure(f"sqlite:///{tmp_path / 'shop.db'}")
    assert scheduler.options.poll_delay_min == timedelta(seconds=9)
    scheduler.close()


def test_twice_before_its_first_use(tmp_path: Path) -> None:
    """The last word counts, also over a URL of the constructor: a test names another store than the code."""
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'one.db'}", allow=[__name__])
    scheduler.configure(f"sqlite:///{tmp_path / 'two.db'}")
    scheduler.enqueue_now(work)
    assert [file.name for file in tmp_path.glob("*.db")] == ["two.db"]
    scheduler.close()


def test_after_its_first_use_it_is_too_late(tmp_path: Path) -> None:
    """Jobs would be lost between two stores."""
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'one.db'}", allow=[__name__])
    scheduler.enqueue_now(work)
    with pytest.raises(ConfigurationError, match=r"has used its store already \(sqlite\)"):
        scheduler.configure(f"sqlite:///{tmp_path / 'two.db'}")
    scheduler.close()


def test_a_bad_url_is_refused_at_once() -> None:
    """And the scheduler is as it was."""
    scheduler = Scheduler()
    with pytest.raises(ConfigurationError):
        scheduler.configure("nonsense")
    assert repr(scheduler) == "Scheduler(no store yet)"


def test_without_a_name_it_is_the_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made, or said, before the first use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RATCHET_URL", raising=False)
    scheduler = Scheduler(allow=[__name__])
    assert not list(tmp_path.iterdir())
    scheduler.enqueue_now(work)
    assert (tmp_path / "ratchet.db").exists()
    scheduler.close()


def test_the_environment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RATCHET_URL` is read when the scheduler is made, and a bad one is refused there."""
    monkeypatch.setenv("RATCHET_URL", f"sqlite:///{tmp_path / 'env.db'}")
    scheduler = Scheduler(allow=[__name__])
    scheduler.enqueue_now(work)
    assert (tmp_path / "env.db").exists()
    scheduler.close()
    monkeypatch.setenv("RATCHET_URL", "nonsense")
    with pytest.raises(ConfigurationError):
        Scheduler()
