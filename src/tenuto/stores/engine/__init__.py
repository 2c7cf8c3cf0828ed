"""One engine for sessions: rules on records, over any store of records.

`record` and `rules` say what a session is; `changes` and `codec` what is stored of it; `lane` and `cache` keep one
process fast and right; `engine` is the port. `docs/ideas/engine.md` shows how they fit together.
"""

from tenuto.stores.engine.codec import Codecs, PlainCodecs
from tenuto.stores.engine.engine import Engine

__all__ = ["Codecs", "Engine", "PlainCodecs"]
