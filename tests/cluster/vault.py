"""An application whose processes have the keys that their environment names; 0.1.0 runs it too, without keys."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from ratchet.scheduler import Scheduler

KEYS = {"a": b"A" * 32, "b": b"B" * 32}


def keyring(names: str, log: str | None = None) -> Any:
    """A keyring of these keys (``ab``: both, the first is active); *log* gets a line for each value that it is asked for in vain."""
    from ratchet.contrib.encryption import Keyring

    class Logging(Keyring):
        def decode(self, data: bytes, key: str, context: bytes) -> bytes:
            if key not in names and log is not None:
                with Path(log).open("a", encoding="utf-8") as file:
                    file.write(f"{os.getpid()} {key}\n")
            return super().decode(data, key, context)

    return Logging(active=names[0], keys={name: KEYS[name] for name in names})


def made(url: str | None, names: str, log: str | None = None) -> Scheduler:
    """A scheduler with these keys; without any it has no codec."""
    more = {"codec": keyring(names, log)} if names else {}
    return Scheduler(url, allow=[__name__], **more)


def echo(value: str) -> str:
    return value


def fail_once(value: str) -> str:
    from ratchet import JobContext

    if JobContext.current().attempt == 1:
        raise ValueError(f"not yet {value}")
    return value


def fail(value: str) -> None:
    raise ValueError(f"cannot {value}")


def told(ctx: Any, *facts: Any) -> None:
    """A callback."""


def later(value: str) -> str:
    """Leaves a checkpoint, and comes back."""
    from ratchet import JobContext, RetryLater

    ctx = JobContext.current()
    if "seen" not in ctx.state:
        ctx.state["seen"] = value
        raise RetryLater(timedelta(milliseconds=1), count=False)
    return value


if "VAULT_KEYS" in os.environ:
    scheduler = made(None, os.environ["VAULT_KEYS"], os.environ.get("VAULT_LOG"))
