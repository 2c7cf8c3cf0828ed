"""The terminal's door: `tenuto serve`, `sessions`, `keys`, `doctor`, `stats` and `sweep`."""

from tenuto.cli.program import main, program

__all__ = ["main", "program"]
