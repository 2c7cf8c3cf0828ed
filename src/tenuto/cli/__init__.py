"""The terminal's door: `tenuto serve`, `worker`, `chat`, `sessions`, `traces`, `keys`, `privacy`, `doctor` and more."""

from tenuto.cli.program import main, program

__all__ = ["main", "program"]
