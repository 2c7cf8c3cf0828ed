"""Adapters: the session, history or memory interfaces of other frameworks, over tenuto's sessions.

Each module needs its framework alone, and is imported by its own name.
"""

from tenuto.extras import install_line


def missing_extra(extra: str) -> ImportError:
    """The error of a module whose framework is not installed."""
    return ImportError(f"this adapter needs its framework: {install_line(extra)}")
