"""What stands in for arguments of a tool call that cannot be read."""

from __future__ import annotations

from typing import Final

# The only argument of such a call; its value is what the model wrote. Pydantic AI uses the same name.
UNREADABLE: Final = "INVALID_JSON"
