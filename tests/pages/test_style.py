"""Colours of the style sheet: contrast of WCAG 2 AA, in both schemes; markup that cannot be broken."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subbit.pages.document import as_script_data, static
from subbit.pages.elements import element
from tests.pages.pages_parser import Parsed

TEXT, GRAPHIC = 4.5, 3.0
"""Least contrast of text, and of lines in a plot."""
PAIRS = [
    *((text, back, TEXT) for text in ("text", "quiet", "link") for back in ("page", "surface", "code")),
    *((f"on-h{level}", f"h{level}", TEXT) for level in range(6)),
    ("good", "good-back", TEXT),
    ("bad", "bad-back", TEXT),
    ("note", "note-back", TEXT),
    ("text", "note-back", TEXT),
    *((f"c{number}", "surface", GRAPHIC) for number in range(8)),
    ("focus", "page", GRAPHIC),
]


def schemes() -> dict[str, dict[str, str]]:
    """The variables of light, of dark by the system's wish, and of dark by the button."""
    found = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for block in static("palette.css").split("color-scheme: ")
    ]
    light, dark, chosen = (each for each in found if each)
    return {"light": light, "dark": dark, "chosen": chosen}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("front", "back", "least"), PAIRS)
def test_contrast(scheme: str, front: str, back: str, least: float) -> None:
    colours = schemes()[scheme]
    light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= least


def test_the_button_gives_the_dark_colours_of_the_system() -> None:
    found = schemes()
    assert found["chosen"] == found["dark"]
    assert found["dark"].keys() == found["light"].keys()


@given(st.text(), st.text())
def test_any_text_is_one_element(text: str, attribute: str) -> None:
    found = Parsed(element("p", text, title=attribute)).elements
    assert [each["tag"] for each in found] == ["p"]


@given(st.text())
def test_data_cannot_end_its_script(text: str) -> None:
    data = as_script_data({text: [text]})
    assert not set("<>&\u2028\u2029") & set(data)
    assert json.loads(data) == {text: [text]}
