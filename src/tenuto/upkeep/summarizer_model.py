"""The small model that titles and summaries are asked of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tenuto.model import Scope

# For whom, instructions, what they are about, and the most tokens it may answer with.
Small: TypeAlias = Callable[[Scope, str, str, int], Awaitable[str]]
