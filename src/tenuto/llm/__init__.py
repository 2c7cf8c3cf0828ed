"""Chat models: the offline one, any provider's, a chain of them, and a scripted one for tests."""

from tenuto.llm.calls import ModelCallLog, ModelCalls
from tenuto.llm.chain import FallbackChain
from tenuto.llm.complete import complete
from tenuto.llm.factory import OFFLINE, GivenModel, MissingModel, ModelConnection, model_names, open_model, provider_of
from tenuto.llm.offline import OfflineModel
from tenuto.llm.scripted import Call, Echo, Fail, Hang, Say, Script, ScriptedModel, Stop, Think
from tenuto.llm.slots import ModelSlots
from tenuto.model.generation import UNREADABLE

__all__ = [
    "OFFLINE",
    "UNREADABLE",
    "Call",
    "Echo",
    "Fail",
    "FallbackChain",
    "GivenModel",
    "Hang",
    "MissingModel",
    "ModelCallLog",
    "ModelCalls",
    "ModelConnection",
    "ModelSlots",
    "OfflineModel",
    "Say",
    "Script",
    "ScriptedModel",
    "Stop",
    "Think",
    "complete",
    "model_names",
    "open_model",
    "provider_of",
]
