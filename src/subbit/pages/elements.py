"""Markup that cannot be broken by what is in it: whatever is not `Html` is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset(("meta", "br", "col", "path", "circle"))
"""Elements without content."""


class Html(str):
    """Markup as it is. Only this file and what has a fixed text make it directly."""


def safe(value: object) -> Html:
    """Text as markup.

    >>> safe("</script><b>")
    '&lt;/script&gt;&lt;b&gt;'
    """
    return value if isinstance(value, Html) else Html(html.escape(_readable(str(value))))


def joined(parts: Iterable[object], between: str = "") -> Html:
    return Html(between.join(safe(part) for part in parts if part is not None))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is `class`, other underscores are dashes; true is an attribute without a value, and one that
    is None or false is left out.

    >>> element("p", "1 < 2", class_="quiet")
    '<p class="quiet">1 &lt; 2</p>'
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(_readable(str(value)))}"')
    opening = f"<{' '.join(words)}>"
    return Html(opening if name in VOID else f"{opening}{joined(children)}</{name}>")


def paragraph(*children: object, class_: str | None = None) -> Html:
    return element("p", *children, class_=class_)


def preformatted(text: str, label: str) -> Html:
    """Commands to copy, or a file. It can be scrolled, so it has a name and can be reached by the keyboard."""
    return element("pre", element("code", text), tabindex="0", role="region", aria_label=label)


def _readable(text: str) -> str:
    """Without characters that HTML does not have, such as a NUL or half of a surrogate pair."""
    return "".join(
        letter
        if letter in "\n\t" or (letter >= " " and not "\x7f" <= letter <= "\x9f")
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text.encode("utf-8", "replace").decode("utf-8")
    )
