"""The settings page names every setting there is, with its default, and none that there is not."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from tenuto.model.policy import PRESETS
from tenuto.settings import Settings, parse_duration

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", PAGE, re.MULTILINE))


def test_every_setting_is_on_the_page() -> None:
    shown = {name for name in ROWS if name not in PRESETS}
    variables = {name for name in Settings.__struct_fields__ if name.startswith("memory_")}

    assert shown == set(Settings.__struct_fields__) - variables
    assert all(f"`{name}`" in PAGE for name in variables)


def test_the_page_shows_the_defaults_that_hold() -> None:
    settings = Settings()
    for name, shown in ROWS.items():
        default = getattr(settings, name, None)
        shown = shown.strip()
        if not shown.startswith("`") or default is None:
            continue
        text = shown.strip("`")
        if isinstance(default, timedelta):
            assert parse_duration(name, text) == default
        elif isinstance(default, bool):
            assert text == str(default).lower()
        else:
            assert text == str(default)


def test_every_preset_is_on_the_page() -> None:
    assert set(PRESETS) <= set(ROWS)
