"""Small pieces of SVG."""

from __future__ import annotations

from markupsafe import Markup, escape

from ratchet.dashboard.text import shown


def element(name: str, content: str | Markup = "", **attributes: object) -> Markup:
    """One element; ``class_`` and ``text_anchor`` become ``class`` and ``text-anchor``. What is None is left out."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), shown(str(value)) if isinstance(value, str) else value
        )
        for key, value in attributes.items()
        if value is not None
    )
    inner = content if isinstance(content, Markup) else escape(shown(content))
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inner, Markup(name))


def cut(text: str, limit: int) -> str:
    """The end of a name tells functions apart; its middle is left out where it is too long."""
    if len(text) <= limit:
        return text
    kept = limit - 1
    return f"{text[: kept // 3]}…{text[-(kept - kept // 3) :]}"
