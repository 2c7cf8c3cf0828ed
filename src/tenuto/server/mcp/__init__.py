"""The MCP door: sessions, memories and boards as tools of any MCP client, over HTTP and standard input and output.

The official SDK speaks the protocol. It takes a second to import, so `routes.py` does without it, and the first request
loads the rest.
"""
