from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.payload import PAYLOAD_LIMIT, RESULT_LIMIT


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def write(directory: Path, text: str) -> Path:
    file = directory / "ratchet.toml"
    file.write_text(text)
    return file


class TestDefaults:
    def test_are_what_the_documents_promise(self) -> None:
        """The defaults that API and design name."""
        options = Options()
        assert options.concurrency == 20
        assert options.async_concurrency == 200
        assert options.priority_boost_interval == timedelta(minutes=15)
        assert options.max_crashes == 3
        assert options.payload_limit == PAYLOAD_LIMIT == 102_400
        assert options.result_limit == RESULT_LIMIT == 65_536
        assert options.auto_migrate is False
        assert options.given == frozenset()

    def test_pass_their_own_checks(self) -> None:
        """Every default could have been given explicitly, and is held unchanged."""
        defaults = {field.name: getattr(Options(), field.name) for field in dataclasses.fields(Options)}
        again = Options(**defaults)
        assert again == Options()
        assert again.given == set(defaults)

    def test_liveness_depends_on_who_beats(self) -> None:
        """Embedded nodes beat every 5 s and may be silent 15 s; under a supervisor 2 s and 5 s."""
        assert Options().liveness() == (s(5), s(15))
        assert Options().liveness(supervised=True) == (s(2), s(5))

    def test_liveness_keeps_its_proportion(self) -> None:
        """Setting one of heartbeat and silence moves the other only where it must."""
        assert Options(heartbeat=10).liveness() == (s(10), s(30))
        assert Options(silence=60).liveness() == (s(5), s(60))
        assert Options(silence=6).liveness() == (s(2), s(6))
        assert Options(heartbeat=1, silence=4).liveness(supervised=True) == (s(1), s(4))


class TestValues:
    def test_durations_accept_seconds_and_are_held_as_timedelta(self) -> None:
        """A number counts seconds."""
        options = Options(drain_timeout=90, retention=timedelta(days=1), prefetch_window=0)
        assert options.drain_timeout == timedelta(seconds=90)
        assert options.retention == timedelta(days=1)
        assert options.prefetch_window == timedelta(0)

    @pytest.mark.parametrize("off", [None, 0, timedelta(0)])
    def test_priority_boost_can_be_turned_off(self, off: Any) -> None:
        """None and 0 both disable it, and are held as None."""
        assert Options(priority_boost_interval=off).priority_boost_interval is None

    def test_queues_are_held_as_a_tuple(self) -> None:
        """A list given by the caller cannot change the options later."""
        given = ["emails", "default"]
        options = Options(queues=given)
        given.append("other")
        assert options.queues == ("emails", "default")

    def test_is_frozen_and_hashable(self) -> None:
        """Options do not change after they were checked."""
        options = Options(concurrency=3)
        with pytest.raises(dataclasses.FrozenInstanceError):
            options.concurrency = 4  # type: ignore[misc]
        assert hash(options) == hash(Options(concurrency=3))
        assert options != Options(concurrency=4)

    @pytest.mark.parametrize(
        ("name", "value", "accepted"),
        [
            ("concurrency", 0, "1 or more"),
            ("concurrency", "20", "whole number"),
            ("concurrency", 2.0, "whole number"),
            ("concurrency", True, "whole number"),
            ("concurrency", None, "whole number"),
            ("chain_depth_limit", 10**9, "100,000"),
            ("drain_timeout", -1, "timedelta or seconds"),
            ("drain_timeout", "30s", "timedelta or seconds"),
            ("drain_timeout", float("nan"), "timedelta or seconds"),
            ("poll_delay_min", 0, "longer than zero"),
            ("retention", 0, "longer than zero, or none"),
            ("notify", 1, "true or false"),
            ("log_level", "LOUD", "DEBUG or INFO"),
            ("sqlite_synchronous", "OFF", "FULL or NORMAL"),
            ("queues", "emails", "list of names"),
            ("queues", [], "list of names"),
            ("queues", [""], "list of names"),
            ("queues", ["a,b"], "list of names"),
            ("node_name", "x" * 65, "64 characters"),
            ("schema", "a\nb", "name of a schema"),
        ],
    )
    def test_bad_values_name_field_value_and_what_is_accepted(
        self, name: str, value: Any, accepted: str
    ) -> None:
        """The message is enough to fix the mistake."""
        with pytest.raises(ConfigurationError) as caught:
            Options(**{name: value})
        message = str(caught.value)
        assert message.startswith(f"{name} = {value!r} is not accepted")
        assert accepted in message

    def test_unknown_names_get_a_suggestion(self) -> None:
        """A typo is answered with the closest name, anything else with the list."""
        with pytest.raises(ConfigurationError, match=r"no option 'concurency'; did you mean 'concurrency'\?"):
            Options(concurency=5)  # type: ignore[call-arg]
        with pytest.raises(ConfigurationError, match="there are concurrency, async_concurrency"):
            Options(xyz=5)  # type: ignore[call-arg]

    def test_values_must_agree(self) -> None:
        """Settings that contradict each other are refused, naming both."""
        with pytest.raises(ConfigurationError, match=r"silence = 9s is less than twice the heartbeat \(5s\)"):
            Options(heartbeat=5, silence=9)
        assert Options(heartbeat=5, silence=10).silence == s(10)
        with pytest.raises(
            ConfigurationError, match=r"poll_delay_min = 1m is longer than poll_delay_max = 30s"
        ):
            Options(poll_delay_min=60)


class TestGiven:
    def test_remembers_what_was_passed_even_if_it_equals_the_default(self) -> None:
        """Explicit is explicit: the default value, passed, counts as given."""
        assert Options(concurrency=20, queues=None).given == {"concurrency", "queues"}

    def test_survives_copies(self) -> None:
        """Copied, pickled (for a process lane) and replaced options still know what was given."""
        options = Options(concurrency=3)
        for other in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
            assert other == options
            assert other.given == {"concurrency"}
        replaced = options.replace(max_crashes=5)
        assert replaced.given == {"concurrency", "max_crashes"}
        assert (replaced.concurrency, replaced.max_crashes) == (3, 5)
        assert options.max_crashes == 3


class TestEnvironment:
    @pytest.mark.parametrize(
        ("variable", "text", "name", "expected"),
        [
            ("RATCHET_CONCURRENCY", "5", "concurrency", 5),
            ("RATCHET_DRAIN_TIMEOUT", "30", "drain_timeout", s(30)),
            ("RATCHET_DRAIN_TIMEOUT", "1h30m", "drain_timeout", s(5400)),
            ("RATCHET_RETENTION", "7d", "retention", timedelta(days=7)),
            ("RATCHET_RETENTION", "none", "retention", None),
            ("RATCHET_PRIORITY_BOOST_INTERVAL", "0", "priority_boost_interval", None),
            ("RATCHET_QUEUES", "emails, default", "queues", ("emails", "default")),
            ("RATCHET_NOTIFY", "off", "notify", False),
            ("RATCHET_AUTO_MIGRATE", "TRUE", "auto_migrate", True),
            ("RATCHET_PAYLOAD_LIMIT", "1MiB", "payload_limit", 1024 * 1024),
            ("RATCHET_PAYLOAD_LIMIT", "5000", "payload_limit", 5000),
            ("RATCHET_LOG_LEVEL", "debug", "log_level", "DEBUG"),
            ("RATCHET_SCHEMA", "jobs", "schema", "jobs"),
        ],
    )
    def test_reads_each_kind_of_value(self, variable: str, text: str, name: str, expected: Any) -> None:
        """Variables are read as people write them, and count as given."""
        options = Options.from_environment({variable: text, "HOME": "/", "OTHER_CONCURRENCY": "x"})
        assert getattr(options, name) == expected
        assert options.given == {name}

    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("RATCHET_CONCURRENCY", "many"),
            ("RATCHET_CONCURRENCY", "0"),
            ("RATCHET_DRAIN_TIMEOUT", "5 parsecs"),
            ("RATCHET_NOTIFY", "maybe"),
            ("RATCHET_PAYLOAD_LIMIT", "1 furlong"),
            ("RATCHET_QUEUES", "a,,b"),
        ],
    )
    def test_bad_values_name_the_variable(self, variable: str, text: str) -> None:
        """The message names the variable as it was set, and what it takes."""
        with pytest.raises(ConfigurationError, match=f"^{variable} = '{text}' is not accepted; it takes "):
            Options.from_environment({variable: text})

    def test_misspelled_variables_are_refused_and_foreign_ones_left_alone(self) -> None:
        """A typo must not be ignored silently; variables of others must not stop the program."""
        with pytest.raises(ConfigurationError, match=r"RATCHET_CONCURENCY.*did you mean 'concurrency'"):
            Options.from_environment({"RATCHET_CONCURENCY": "5"})
        foreign = {
            "RATCHET_URL": "sqlite:///x",
            "RATCHET_PORT": "tcp://10.0.0.1:80",
            "RATCHET_SERVICE_HOST": "10.0.0.1",
            "RATCHET_TEST_POSTGRESQL_URL": "postgresql://x",
        }
        assert Options.from_environment(foreign) == Options()

    def test_reads_this_process_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without an argument the real environment is read."""
        monkeypatch.setenv("RATCHET_CONCURRENCY", "7")
        assert Options.from_environment().concurrency == 7
        assert Options.load().concurrency == 7


class TestToml:
    @pytest.mark.parametrize("table", ["ratchet", "tool.ratchet"])
    def test_reads_both_tables(self, tmp_path: Path, table: str) -> None:
        """A file of its own and pyproject.toml both work; dashes are underscores."""
        file = write(
            tmp_path,
            f'[{table}]\nurl = "x"\nconcurrency = 5\ndrain-timeout = "1m"\nheartbeat = 2.5\nqueues = ["a", "b"]\n'
            f'retention = "none"\nnotify = false\n',
        )
        options = Options.from_toml(file)
        assert options == Options(
            concurrency=5, drain_timeout=60, heartbeat=2.5, queues=["a", "b"], retention=None, notify=False
        )
        assert options.given == {"concurrency", "drain_timeout", "heartbeat", "queues", "retention", "notify"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[ratchet]\nconcurency = 5", r"concurency in .*ratchet\.toml: .*did you mean 'concurrency'"),
            ("[ratchet]\nconcurrency = 0", r"concurrency in .*ratchet\.toml = 0 is not accepted"),
            ('[ratchet]\ndrain_timeout = "x"', r"drain_timeout in .* = 'x' is not accepted"),
            ("[other]", r"no table \[ratchet\] or \[tool\.ratchet\]"),
            ("[ratchet", "not valid TOML"),
        ],
    )
    def test_mistakes_name_the_file(self, tmp_path: Path, text: str, message: str) -> None:
        """The message leads to the line that is wrong."""
        with pytest.raises(ConfigurationError, match=message):
            Options.from_toml(write(tmp_path, text))

    def test_missing_file_is_an_error(self, tmp_path: Path) -> None:
        """A path that was named and does not exist is not ignored."""
        with pytest.raises(ConfigurationError, match="cannot read"):
            Options.from_toml(tmp_path / "missing.toml")


class TestLoad:
    def test_code_wins_over_environment_over_file(self, tmp_path: Path) -> None:
        """Each source wins only where it says something, also if it says the default."""
        file = write(
            tmp_path, "[ratchet]\nconcurrency = 1\nmax_crashes = 1\nmax_prefetch = 1\ncompletion_batch = 1"
        )
        environ = {"RATCHET_CONCURRENCY": "2", "RATCHET_MAX_CRASHES": "2", "RATCHET_MAX_PREFETCH": "2"}
        code = Options(concurrency=20, max_crashes=4)
        options = Options.load(code, environ, file)
        assert (options.concurrency, options.max_crashes) == (20, 4)
        assert (options.max_prefetch, options.completion_batch) == (2, 1)
        assert options.async_concurrency == 200

    def test_settings_of_different_sources_must_agree_too(self) -> None:
        """The check of what belongs together sees the merged values."""
        with pytest.raises(ConfigurationError, match="twice the heartbeat"):
            Options.load(Options(silence=5), {"RATCHET_HEARTBEAT": "4s"})


class TestReference:
    def test_every_option_has_a_row(self) -> None:
        """Nothing can be set that the reference does not describe."""
        rows = Options.reference()
        assert [row.name for row in rows] == [field.name for field in dataclasses.fields(Options)]
        assert all(row.description.endswith(".") and row.section and row.accepts for row in rows)
        assert {row.section for row in rows} == {
            "Running jobs", "Liveness", "Claiming", "Completing", "Stopping", "Retention", "Limits", "Database",
        }  # fmt: skip

    def test_shown_defaults_are_read_back_as_the_defaults(self) -> None:
        """The reference shows defaults in the form in which a variable takes them."""
        environ = {row.environment: row.default for row in Options.reference()}
        assert Options.from_environment(environ) == Options()

    def test_markdown_has_a_table_per_section(self) -> None:
        """The generated page is Markdown with one line per option."""
        page = Options.reference_markdown()
        assert page.startswith("## Running jobs\n\n| Option |")
        assert page.count("\n## ") == 7
        for row in Options.reference():
            assert page.count(f"| `{row.name}`<br>") == 1

    def test_signature_shows_the_options(self) -> None:
        """help(Options) and editors list the fields."""
        assert list(inspect.signature(Options).parameters)[:2] == ["concurrency", "async_concurrency"]
