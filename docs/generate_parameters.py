"""Writes the table of parameters in `how-to/models.md` out of the code, between two marks.

Run it after a change of a parameter: `python docs/generate_parameters.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic_ai.models.anthropic import AnthropicModel

from tenuto.llm import OfflineModel
from tenuto.llm.provider_parameters import Dialect, parameters_taken
from tenuto.model.parameters import PARAMETERS

PAGE: Final = Path(__file__).parent / "how-to" / "models.md"
_FROM: Final = "<!-- Written by docs/generate_parameters.py up to the next mark; do not edit. -->\n"
_TO: Final = "<!-- Written by people again. -->\n"
_EXTRA: Final = "extra"
_COLUMNS: Final = {
    "OpenAI chat, and servers that speak it": parameters_taken(Dialect.OPENAI_CHAT, frozenset()),
    "OpenAI responses": parameters_taken(Dialect.OPENAI_RESPONSES, frozenset()),
    "Anthropic": parameters_taken(Dialect.ANTHROPIC, frozenset(AnthropicModel.unsupported_settings)),
    "others, if they have it": parameters_taken(Dialect.OTHER, frozenset()),
    "offline": OfflineModel.facts.parameters,
}


def render_page(page: str) -> str:
    """The page with the table of parameters."""
    before, _, rest = page.partition(_FROM)
    return f"{before}{_FROM}{''.join(_table())}\n{_TO}{rest.partition(_TO)[2]}"


def _table() -> Iterator[str]:
    yield f"\n| parameter | {' | '.join(_COLUMNS)} |\n|---|{'---|' * len(_COLUMNS)}\n"
    for name in PARAMETERS:
        label = "fields of the provider's own" if name == _EXTRA else f"`{name}`"
        yield f"| {label} | {' | '.join('yes' if name in taken else '–' for taken in _COLUMNS.values())} |\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
