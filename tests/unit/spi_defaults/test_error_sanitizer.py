from __future__ import annotations

import time
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.defaults.error_sanitizer import (
    MESSAGE_LIMIT,
    REDACTED,
    TEXT_LIMIT,
    DefaultErrorSanitizer,
)
from tests.unit.spi_defaults.hostile_forms import FORMS, OUT_OF_REACH

SANITIZER = DefaultErrorSanitizer()

WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nsecretsecret\n-----END RSA PRIVATE KEY-----"

REDACTIONS = [
    # URLs of any scheme
    ("jdbc:mysql://admin:s3cret@db.internal:3306/prod", "jdbc:mysql://[REDACTED]@db.internal:3306/prod"),
    ("postgresql://user:pw@host/db", "postgresql://[REDACTED]@host/db"),
    ("mongodb+srv://u:p@a.example,b.example/db", "mongodb+srv://[REDACTED]@a.example,b.example/db"),
    ("redis://:pw@cache:6379/0", "redis://[REDACTED]@cache:6379/0"),
    ("https://ghtoken@github.com/x", "https://[REDACTED]@github.com/x"),
    ("postgresql://u:p@ss@host/db", "postgresql://[REDACTED]@host/db"),
    ("postgresql://u:p/ss@host/db", "postgresql://[REDACTED]@host/db"),
    ("postgresql://u:p@s/s@host/db", "postgresql://[REDACTED]@host/db"),
    ("postgresql://u:p?s#s@host/db", "postgresql://[REDACTED]@host/db"),
    ("postgresql://u:p'q@host/db", "postgresql://[REDACTED]@host/db"),
    ("connect('postgresql://u:p@h/db')", "connect('postgresql://[REDACTED]@h/db')"),
    ("http://h/?next=https://u:p@other/x", "http://h/?next=https://[REDACTED]@other/x"),
    ("jdbc:oracle:thin:scott/tiger@//h:1521/x", "jdbc:oracle:thin:[REDACTED]@//h:1521/x"),
    # people
    ("no account ann.lee+work@mail.example.co.uk here", "no account [REDACTED] here"),
    ("to=ann@example.com, cc=bob@example.com", "to=[REDACTED], cc=[REDACTED]"),
    # headers
    ("Authorization: Bearer abc.def-123 was refused", "Authorization: [REDACTED] was refused"),
    ("authorization: Basic dXNlcjpwdw==", "authorization: [REDACTED]"),
    ("{'Authorization': 'Token abc', 'Accept': '*'}", "{'Authorization': '[REDACTED]', 'Accept': '*'}"),
    ('"authorization": "Bearer x y", "a": 1', '"authorization": "[REDACTED]", "a": 1'),
    ('Authorization: Digest username="u", response="0a"', "Authorization: [REDACTED]"),
    ("sent Bearer abcDEF123456", "sent Bearer [REDACTED]"),
    ("Cookie: session=abc; theme=dark\nnext", "Cookie: [REDACTED]\nnext"),
    # names that announce a secret
    ("password=hunter2 user=bob", "password=[REDACTED] user=bob"),
    ("host=db password='a b c' user=bob", "host=db password='[REDACTED]' user=bob"),
    ('password="a \\"b" user=bob', 'password="[REDACTED]" user=bob'),
    ('{"password": "hunter2", "user": "bob"}', '{"password": "[REDACTED]", "user": "bob"}'),
    (r"{\"password\": \"hunter2\", \"user\": 1}", r"{\"password\": \"[REDACTED]\", \"user\": 1}"),
    ("{'db_password': b'hunter2'}", "{'db_password': b'[REDACTED]'}"),
    ("config['password'] = 'hunter2'", "config['password'] = '[REDACTED]'"),
    ("https://h/cb?token=abc&x=1", "https://h/cb?token=[REDACTED]&x=1"),
    ("api_key=abc; apiKey: def", "api_key=[REDACTED]; apiKey: [REDACTED]"),
    ("client_secret=abc,def ok", "client_secret=[REDACTED] ok"),
    ("AWS_SECRET_ACCESS_KEY=abc/def+g", "AWS_SECRET_ACCESS_KEY=[REDACTED]"),
    ("Server=x;Uid=a;Pwd=b;", "Server=x;Uid=a;Pwd=[REDACTED];"),
    ("DB_PASS=abc", "DB_PASS=[REDACTED]"),
    ("ALTER ROLE bob PASSWORD 'abc'", "ALTER ROLE bob PASSWORD '[REDACTED]'"),
    ("CREATE USER bob IDENTIFIED BY 'abc'", "CREATE USER bob IDENTIFIED BY '[REDACTED]'"),
    ("password='never closed", "password='[REDACTED]"),
    # keys and numbers
    ("key AKIAIOSFODNN7EXAMPLE used", "key [REDACTED] used"),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345 expired", "[REDACTED] expired"),
    (f"bad token {WEB_TOKEN}", "bad token [REDACTED]"),
    (f"loaded {PRIVATE_KEY} from disk", "loaded [REDACTED] from disk"),
    ("-----BEGIN PRIVATE KEY-----\nMIIE", REDACTED),
    ("card 4111 1111 1111 1111 declined", "card [REDACTED] declined"),
    ("card 4111-1111-1111-1111", "card [REDACTED]"),
    ("order 12 5555555555554444 7", "order 12 [REDACTED] 7"),
]

UNTOUCHED = [
    "division by zero",
    "http://registry:4873/@scope/package",
    "https://medium.com/@someone/post",
    "http://localhost:8080/path?x=1",
    "lodash@4.17.21 is missing",
    "basic authentication failed",
    'password authentication failed for user "bob"',
    "Access denied for user 'bob'@'localhost' (using password: YES)",
    "api_key=None, region=eu",
    "tokenizer: bert",
    "bypass=1",
    "order 1731661234567 of 1234567890123456",
    "0190a6c4-7b1e-7c3a-9d55-4f6a3b2c1d0e",
    "at 2025-11-15 10:21:33.123456",
    "max_tokens=4096, temperature=0.2",
    'Key (user_id)=(42) is not present in table "users".',
    "Duplicate entry '42' for key 'users.PRIMARY'",
    "<name>Bob</name>",
    'File "shop.py", line 12, in charge',
    "tool --verbose --retries 3",
    "see https://example.com/docs?page=2&lang=en",
    "12:30 in room 4",
    "1 validation error for Order",
    "Command 'true' returned non-zero exit status 1.",
]


class TestRedaction:
    @pytest.mark.parametrize(("text", "expected"), REDACTIONS)
    def test_a_secret_is_removed_and_its_surroundings_stay(self, text: str, expected: str) -> None:
        """What surrounds a secret is kept for diagnosis; the secret itself is not."""
        assert SANITIZER.sanitize_text(text) == expected

    @pytest.mark.parametrize("text", UNTOUCHED)
    def test_ordinary_text_is_left_alone(self, text: str) -> None:
        """Text that only resembles a secret is stored as it was."""
        assert SANITIZER.sanitize_text(text) == text

    @pytest.mark.parametrize(("text", "expected"), REDACTIONS)
    def test_sanitizing_again_changes_nothing(self, text: str, expected: str) -> None:
        """Each documented redaction is a fixed point."""
        assert SANITIZER.sanitize_text(expected) == expected

    @pytest.mark.parametrize(("text", "secret"), FORMS, ids=[text[:60] for text, _ in FORMS])
    def test_no_form_of_the_table_lets_its_secret_through(self, text: str, secret: str) -> None:
        """However libraries, files and protocols write a secret down: it is not stored, also inside other text."""
        for shown in (text, f"failed: {text}", f"first line\n{text}\nlast line"):
            for clean in (SANITIZER.sanitize_text(shown), SANITIZER.sanitize(RuntimeError(shown))):
                assert secret not in clean
                assert all(line not in clean for line in secret.splitlines())

    @pytest.mark.parametrize("text", [text for text, _ in FORMS])
    def test_each_form_is_clean_after_one_pass(self, text: str) -> None:
        """Sanitizing the result again changes nothing."""
        once = SANITIZER.sanitize_text(text)
        assert SANITIZER.sanitize_text(once) == once

    @pytest.mark.parametrize("text", OUT_OF_REACH)
    def test_what_cannot_be_caught_is_known(self, text: str) -> None:
        """A secret in free prose has no mark; the documentation says so, and this list has to stay true."""
        assert SANITIZER.sanitize_text(text) == text

    def test_a_traceback_loses_its_secrets_and_keeps_its_frames(self) -> None:
        """A traceback that shows a connection string is stored without the password."""
        try:
            raise RuntimeError("cannot reach postgresql://app:s3cret@db/shop")
        except RuntimeError:
            text = SANITIZER.sanitize_text(traceback.format_exc())
        assert "s3cret" not in text
        assert "test_a_traceback_loses_its_secrets" in text
        assert "postgresql://[REDACTED]@db/shop" in text


class TestMessage:
    def test_the_seed_example(self) -> None:
        """The documented example: class name first, credentials gone, host kept."""
        error = RuntimeError("Connection failed: jdbc:mysql://admin:s3cret@db.internal:3306/prod")
        assert SANITIZER.sanitize(error) == (
            "RuntimeError: Connection failed: jdbc:mysql://[REDACTED]@db.internal:3306/prod"
        )

    def test_an_error_without_a_message_is_its_class_name(self) -> None:
        """No dangling colon."""
        assert SANITIZER.sanitize(ValueError()) == "ValueError"

    def test_a_long_message_is_cut_to_the_limit(self) -> None:
        """The class name and the beginning survive, and the cut is visible."""
        message = SANITIZER.sanitize(ValueError("x" * 100_000))
        assert len(message) <= MESSAGE_LIMIT
        assert message.startswith("ValueError: xxx")
        assert message.endswith("…")

    @pytest.mark.parametrize("failure", [RuntimeError, RecursionError, SystemExit, KeyboardInterrupt])
    def test_an_error_that_cannot_be_shown_is_still_recorded(self, failure: type[BaseException]) -> None:
        """Whatever ``__str__`` raises, a message with the class name comes back."""

        class Broken(Exception):
            def __str__(self) -> str:
                raise failure("no")

        assert SANITIZER.sanitize(Broken()) == f"Broken: (no message: str() raised {failure.__name__})"

    def test_a_str_that_returns_something_else_is_survived(self) -> None:
        """``__str__`` returning a number is a TypeError in Python and a message here."""

        class Broken(Exception):
            def __str__(self) -> str:
                return 42  # type: ignore[return-value]

        assert SANITIZER.sanitize(Broken()).startswith("Broken: (no message")

    def test_what_no_database_stores_is_spelled_out(self) -> None:
        """U+0000 and lone surrogates become visible escapes."""
        message = SANITIZER.sanitize(ValueError("a\0b\ud800c ä"))
        assert message == "ValueError: a\\x00b\\ud800c ä"
        message.encode("utf-8")


class TestCutting:
    def test_a_long_text_keeps_both_ends(self) -> None:
        """A traceback's first frame and its final line survive the cut."""
        text = SANITIZER.sanitize_text("first frame\n" + "line\n" * 50_000 + "RuntimeError: last")
        assert len(text) <= TEXT_LIMIT
        assert text.startswith("first frame\n")
        assert "… cut …" in text
        assert text.endswith("RuntimeError: last")

    @pytest.mark.parametrize("offset", range(0, 60, 3))
    def test_the_cut_does_not_uncover_half_a_secret(self, offset: int) -> None:
        """A URL that the first cut splits is dropped rather than stored without its '@'."""
        sanitizer = DefaultErrorSanitizer(message_limit=100, text_limit=100)
        url = "postgresql://application:hunter2hunter2@database/shop "
        error = ValueError("é" * (400 - offset) + " " + url * 20)
        assert "hunter2" not in sanitizer.sanitize(error)
        text = url * 20 + "x" * offset + " " + "y " * 80 + url * 20
        assert "hunter2" not in sanitizer.sanitize_text(text)

    def test_a_private_key_that_the_cut_splits_is_dropped(self) -> None:
        """The part of a key block behind the cut is recognized by its END line."""
        sanitizer = DefaultErrorSanitizer(text_limit=400)
        block = "-----BEGIN PRIVATE KEY-----\n" + "SECRETSECRET\n" * 150 + "-----END PRIVATE KEY-----\n"
        assert "SECRET" not in sanitizer.sanitize_text("start\n" + "a\n" * 400 + block + "end of text\n" * 10)


SIGNS = "password|=|:|'|\"|\\|://|@| |\n|,|4111|1|a|[REDACTED]|token|Authorization|Bearer |…|-|.|com|/|\0|é"
FRAGMENTS = st.sampled_from(
    [*(text for text, _ in REDACTIONS), *(text for text, _ in FORMS), *UNTOUCHED, *SIGNS.split("|")]
)


class TestProperties:
    @given(st.lists(FRAGMENTS, max_size=30).map("".join))
    def test_sanitizing_twice_is_sanitizing_once(self, text: str) -> None:
        """Idempotent for whatever the fragments combine to."""
        once = SANITIZER.sanitize_text(text)
        assert SANITIZER.sanitize_text(once) == once

    @given(st.lists(FRAGMENTS, max_size=30).map("".join), st.integers(30, 200))
    def test_the_limit_holds_and_cutting_keeps_it_idempotent(self, text: str, limit: int) -> None:
        """With a limit that bites, the result fits it and is a fixed point."""
        sanitizer = DefaultErrorSanitizer(limit, limit)
        once = sanitizer.sanitize_text(text)
        assert len(once) <= limit
        assert sanitizer.sanitize_text(once) == once
        assert len(sanitizer.sanitize(ValueError(text))) <= limit

    @given(st.text(max_size=500))
    def test_any_text_comes_back_storable(self, text: str) -> None:
        """Never raises; the result encodes as UTF-8 and holds no U+0000."""
        result = SANITIZER.sanitize_text(text)
        assert "\0" not in result
        result.encode("utf-8")
        SANITIZER.sanitize(ValueError(text))


NASTY = {
    "schemes": "://",
    "ports": "://a:",
    "addresses": "a@",
    "dots": "a.",
    "letters": "a",
    "web tokens": "eyJ-",
    "web token parts": "eyJaaaaaaaa.",
    "digits": "4 ",
    "card groups": "4111 ",
    "assignments": "password=",
    "open quotes": 'password="',
    "backslashes": "password=\\",
    "key blocks": "-----BEGIN PRIVATE KEY-----",
    "key ends": "-----END RSA PRIVATE",
    "headers": "authorization:",
    "bearers": "bearer ",
    "blanks": " ",
    "name parts": "token_",
    "commas": ",",
    "brackets": "password=(",
    "bracket lines": "password=[\n",
    "blocks": "password: |\n ",
    "elements": "<password>",
    "element names": "<password ",
    "encoded names": "password%3D",
    "encoded schemes": "%3a%2f%2f",
    "options": "--password ",
    "pairs": "('password', '",
    "inputs": "input_value=",
    "commands": "Command '['a', ",
    "rows": "Failing row contains (",
    "keys of rows": "Key (token)=(",
    "duplicates": "Duplicate entry '",
    "parameters": "[parameters: ",
    "logins": "a:b@",
    "webhooks": "hooks.slack.com/services/",
    "query users": "?user=",
    "locations": "'loc': (",
}


class TestLinearTime:
    @pytest.mark.parametrize("unit", NASTY.values(), ids=NASTY.keys())
    def test_a_megabyte_of_nasty_text_is_quick(self, unit: str) -> None:
        """The first cut bounds the work, whatever the text was made of."""
        text = unit * (1_000_000 // len(unit))
        started = time.thread_time()
        SANITIZER.sanitize_text(text)
        SANITIZER.sanitize(RuntimeError(text))
        assert time.thread_time() - started < 2.0

    @pytest.mark.parametrize("unit", NASTY.values(), ids=NASTY.keys())
    def test_the_patterns_themselves_are_linear(self, unit: str) -> None:
        """Eight times the text takes far less than the 64 times of a quadratic pattern."""
        unlimited = DefaultErrorSanitizer(10_000_000, 10_000_000)

        def seconds(size: int) -> float:
            text = "password=" + unit * (size // len(unit))
            started = time.thread_time()
            unlimited.sanitize_text(text)
            return time.thread_time() - started

        small = min(seconds(25_000) for _ in range(3))
        assert seconds(200_000) < 30 * small + 0.1
