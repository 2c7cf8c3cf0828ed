"""What `app` puts together, by subject. Each part is loaded when it is first asked for: programs that only store
sessions do without models, assistants, memories, plans and ciphers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenuto.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from tenuto.wiring.agents import load_known_agents as load_known_agents
    from tenuto.wiring.chat import open_chat as open_chat
    from tenuto.wiring.chat import open_small as open_small
    from tenuto.wiring.gateway import make_gateway as make_gateway
    from tenuto.wiring.gateway import open_gateways as open_gateways
    from tenuto.wiring.models import register_model as register_model
    from tenuto.wiring.people import make_people as make_people
    from tenuto.wiring.privacy_service import make_privacy_service as make_privacy_service
    from tenuto.wiring.recall import open_memories as open_memories
    from tenuto.wiring.tasks import make_agent_contexts as make_agent_contexts
    from tenuto.wiring.tasks import open_engine as open_engine

__getattr__ = lazy_exports(
    __name__,
    {
        "tenuto.wiring.agents": ("load_known_agents",),
        "tenuto.wiring.chat": ("open_chat", "open_small"),
        "tenuto.wiring.gateway": ("make_gateway", "open_gateways"),
        "tenuto.wiring.models": ("register_model",),
        "tenuto.wiring.people": ("make_people",),
        "tenuto.wiring.privacy_service": ("make_privacy_service",),
        "tenuto.wiring.recall": ("open_memories",),
        "tenuto.wiring.tasks": ("make_agent_contexts", "open_engine"),
    },
)
