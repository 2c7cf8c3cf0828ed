"""The MCP door: sessions, memories and boards as tools of any MCP client, over HTTP and standard input and output.

The official SDK speaks the protocol. It takes a second to import, so only `service.py` and `tools.py` know it, and they
are loaded with the first request.
"""
