"""URLs of stores, as they may be shown."""

from __future__ import annotations

from urllib.parse import urlsplit


def redacted(url: str) -> str:
    """*url* without user, password and parameters: what may be shown."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return url
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
