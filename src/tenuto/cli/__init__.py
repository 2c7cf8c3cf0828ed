"""The terminal's door: `tenuto serve`, `chat`, `sessions`, `traces`, `keys`, `doctor`, `stats` and `sweep`."""

from tenuto.cli.program import main, program

__all__ = ["main", "program"]
