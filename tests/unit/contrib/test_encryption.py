"""`Keyring`: what it takes for a key, what it refuses, and that no key is ever shown."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from ratchet import BusinessKeyBusy, ConfigurationError, JobFilter, JobStatus, Scheduler
from ratchet.contrib import encryption
from ratchet.contrib.encryption import Keyring
from ratchet.model.errors import MissingKey, UnstorableData
from ratchet.testing import ManualScheduler

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
TEXT = base64.b64encode(KEY).decode()


def nothing(value: object = None) -> None:
    """A job."""


class TestKeys:
    @pytest.mark.parametrize(
        "secret", [KEY, bytearray(KEY), TEXT, base64.urlsafe_b64encode(KEY).decode(), f" {TEXT}\n"]
    )
    def test_bytes_or_base64(self, secret: Any) -> None:
        """All forms are the same key."""
        data = Keyring(active="k", keys={"k": KEY}).encode(b"value", "k", b"here")
        assert Keyring(active="k", keys={"k": secret}).decode(data, "k", b"here") == b"value"

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"keys": {"k": KEY[:31]}}, "31 bytes"),
            ({"keys": {"k": "not base64!"}}, "not base64"),
            ({"keys": {"k": base64.b64encode(KEY[:16]).decode()}}, "16 bytes"),
            ({"keys": {"k": 7}}, "not a int"),
            ({"keys": {"other": KEY}}, "active key 'k' is not among"),
            ({"keys": {}}, "not among the keys"),
            ({"keys": 7}, "mapping"),
            ({"keys": {"k": KEY, "a b": KEY}}, "id of a key"),
            ({"keys": {"k": KEY, "": KEY}}, "id of a key"),
            ({"keys": {"k": KEY, "x" * 65: KEY}}, "id of a key"),
            ({"keys": {"k": KEY}, "retired": ["k"]}, "retired, but"),
            ({"keys": {"k": KEY}, "retired": "old"}, "list"),
            ({"keys": {"k": KEY}, "hash_keys": b"short"}, "hash_keys has 5 bytes"),
            ({"keys": lambda key: None}, "has no key 'k'"),
        ],
    )
    def test_what_is_refused(self, given: dict[str, Any], match: str) -> None:
        """With a message that says what is wrong, and nothing of the key."""
        with pytest.raises(ConfigurationError, match=match) as refused:
            Keyring(active="k", **given)
        assert TEXT not in str(refused.value)
        assert "not base64!" not in str(refused.value)

    def test_no_key_is_shown(self) -> None:
        """Not by repr, not by an error, not by pickle, not by a traceback of a provider that fails."""
        ring = Keyring(active="k", keys={"k": KEY}, hash_keys=OTHER)
        assert repr(ring) == "Keyring(active='k', keys=['k'])"
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(ring)
        assert repr(KEY) not in repr(vars(ring))

    def test_a_nonce_for_each_value(self) -> None:
        """The same value twice is two texts."""
        ring = Keyring(active="k", keys={"k": KEY})
        assert len({ring.encode(b"value", "k", b"here")[:12] for _ in range(1000)}) == 1000

    def test_context_and_key_are_authenticated(self) -> None:
        """Another field, another job, another key: nothing comes out."""
        ring = Keyring(active="k", keys={"k": KEY, "o": OTHER})
        data = ring.encode(b"value", "k", b"job:1:payload")
        for key, context in (("k", b"job:1:params"), ("k", b"job:2:payload"), ("o", b"job:1:payload")):
            with pytest.raises(InvalidTag):
                ring.decode(data, key, context)
        with pytest.raises(MissingKey):
            ring.decode(data, "gone", b"job:1:payload")


class TestProviders:
    def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first is active, or the one that is named."""
        monkeypatch.setenv("RATCHET_KEYS", f"new:{TEXT}, old:{base64.b64encode(OTHER).decode()}")
        assert Keyring.from_environment().active_key() == "new"
        assert list(Keyring.from_environment(active="old").keys()) == ["new", "old"]
        for bad, match in (
            ("", "not set"),
            (TEXT, "entry 1"),
            (f"k:{TEXT},k:{TEXT}", "twice"),
            ("k:???", "not base64"),
        ):
            monkeypatch.setenv("RATCHET_KEYS", bad)
            with pytest.raises(ConfigurationError, match=match) as refused:
                Keyring.from_environment()
            assert TEXT not in str(refused.value)

    def test_file(self, tmp_path: Path) -> None:
        """Only one that nobody else can read."""
        file = tmp_path / "keys"
        file.write_text(f"# rotated in November\nnew:{TEXT}\n\nold:{base64.b64encode(OTHER).decode()}\n")
        for mode in (0o644, 0o640, 0o660, 0o604):
            file.chmod(mode)
            with pytest.raises(ConfigurationError, match="chmod 600"):
                Keyring.from_file(file)
        file.chmod(0o600)
        assert Keyring.from_file(file).active_key() == "new"
        assert Keyring.from_file(str(file), active="old").active_key() == "old"
        file.write_text("\n# nothing\n")
        with pytest.raises(ConfigurationError, match="no key"):
            Keyring.from_file(file)
        with pytest.raises(ConfigurationError, match="FileNotFoundError"):
            Keyring.from_file(tmp_path / "missing")

    def test_a_function(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """It is asked once for each key; one that it does not have now it may have later, and its errors say nothing."""
        asked: list[str] = []
        there = {"k": KEY}

        def provide(key: str) -> bytes:
            asked.append(key)
            if key == "short":
                return KEY[:5]
            if key == "broken":
                raise ConnectionError(f"while fetching {TEXT}")
            return there[key]

        ring = Keyring(active="k", keys=provide)
        assert ring.decode(ring.encode(b"v", "k", b"c"), "k", b"c") == b"v"
        assert not ring.has_key("late")
        assert not ring.has_key("broken")
        assert not ring.has_key("late")
        assert not ring.has_key("short")
        assert asked == ["k", "late", "broken", "short"]
        assert TEXT not in caplog.text
        monkeypatch.setattr(encryption, "ASK_AGAIN", 0.0)
        there["late"] = OTHER
        assert ring.has_key("late")
        assert list(ring.keys()) == ["k", "late"]


class TestHashedKeys:
    def scheduler(self, **given: Any) -> ManualScheduler:
        return ManualScheduler(codec=Keyring(active="k", keys={"k": KEY}, hash_keys=OTHER), **given)

    def test_keys_do_their_work_and_are_not_stored(self) -> None:
        """Business and idempotency keys hold and are found as before; what is stored is an HMAC."""
        scheduler = self.scheduler()
        first = (
            scheduler.enqueue(nothing)
            .with_business_key("iban-DE1")
            .with_idempotency_key("request-1")
            .submit()
        )
        with pytest.raises(BusinessKeyBusy) as busy:
            scheduler.enqueue(nothing).with_business_key("iban-DE1").submit()
        assert (busy.value.key, busy.value.holder) == ("iban-DE1", first.id)
        again = scheduler.enqueue(nothing).with_idempotency_key("request-1").submit()
        assert (again.id, again.duplicate) == (first.id, True)
        assert [job.id for job in scheduler.jobs.find(JobFilter(business_key="iban-DE1"))] == [first.id]
        job = first.job()
        for key in (job.business_key, job.idempotency_key):
            assert key is not None
            assert key.startswith("hmac:")
            assert "iban" not in key
        scheduler.drain()
        assert (
            scheduler.enqueue(nothing).with_business_key("iban-DE1").submit().job().status
            is JobStatus.PENDING
        )

    def test_of_a_schedule(self) -> None:
        """Its runs have the same hash as a job with that key: it is not hashed twice."""
        scheduler = self.scheduler()
        schedule = scheduler.schedule_recurring("0 * * * *", nothing, name="hourly", business_key="iban-DE1")
        run = schedule.trigger()
        assert run is not None
        with pytest.raises(BusinessKeyBusy):
            scheduler.enqueue(nothing).with_business_key("iban-DE1").submit()
        assert "iban" not in str(scheduler.store.schedules())

    def test_without_hash_keys_they_stay_readable(self) -> None:
        """Keys, tags and targets are for finding jobs."""
        scheduler = ManualScheduler(codec=Keyring(active="k", keys={"k": KEY}))
        assert scheduler.enqueue(nothing).with_business_key("b").submit().job().business_key == "b"


def test_a_codec_without_methods_is_refused() -> None:
    """Where it is given, not with the first job."""
    with pytest.raises(ConfigurationError, match="codec"):
        Scheduler("sqlite:///:memory:", codec=object())  # type: ignore[arg-type]  # nonsense


def test_a_codec_that_fails_stores_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The submission is refused, and neither the value nor what the codec said is in the error or the log."""

    class Broken(Keyring):
        def encode(self, value: bytes, key: str, context: bytes) -> bytes:
            raise RuntimeError(f"cannot encrypt {value!r} with {KEY!r}")

    scheduler = ManualScheduler(codec=Broken(active="k", keys={"k": KEY}))
    with caplog.at_level(logging.DEBUG), pytest.raises(UnstorableData) as refused:
        scheduler.enqueue_now(nothing, "a secret")
    told = "".join(traceback.format_exception(refused.value)) + caplog.text
    assert "with b" not in told
    assert scheduler.jobs.count() == 0


def test_it_is_imported_only_by_who_asks_for_it() -> None:
    """`import ratchet` does without cryptography."""
    import subprocess
    import sys

    code = "import sys, ratchet; ratchet.Scheduler; print('cryptography' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert found.stdout.strip() == "False"
