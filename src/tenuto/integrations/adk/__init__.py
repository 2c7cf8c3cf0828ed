"""Session and memory services of Google's Agent Development Kit, kept by tenuto.

    runner = Runner(
        agent=agent, app_name="shop",
        session_service=TenutoSessionService("chat.db"), memory_service=TenutoMemoryService("chat.db"),
    )

An app is a site of the tenant, and a user of the app is a user of that site. Events are messages. State of a session is
in its metadata, that of apps and users in their key/value state.
"""

from tenuto.integrations.adk.memory import TenutoMemoryService
from tenuto.integrations.adk.sessions import TenutoSessionService

__all__ = ["TenutoMemoryService", "TenutoSessionService"]
