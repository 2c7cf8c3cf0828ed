"""The A2A door: every assistant is an agent of the Agent2Agent protocol, a context is a session, a task is our task.

The official SDK speaks the protocol. It takes seconds to import, so `routes.py` and `card.py` do without it, and the
first call loads the rest.
"""
