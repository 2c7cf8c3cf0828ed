"""Chat models: the offline one, any provider's, a chain of them, and a scripted one for tests."""

from tenuto.llm.access import Access
from tenuto.llm.by_name import OFFLINE, GivenModel, model_names, open_model, provider_of
from tenuto.llm.chain import Chain
from tenuto.llm.offline import OfflineModel
from tenuto.llm.once import complete
from tenuto.llm.scripted import Call, Echo, Fail, Hang, Say, Script, ScriptedModel, Stop
from tenuto.llm.unreadable import UNREADABLE

__all__ = [
    "OFFLINE",
    "UNREADABLE",
    "Access",
    "Call",
    "Chain",
    "Echo",
    "Fail",
    "GivenModel",
    "Hang",
    "OfflineModel",
    "Say",
    "Script",
    "ScriptedModel",
    "Stop",
    "complete",
    "model_names",
    "open_model",
    "provider_of",
]
