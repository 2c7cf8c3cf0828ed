"""Web streams: the chat for browsers that speak the AI SDK's UI message stream or AG-UI.

Both send the whole history with every request and name messages by ids of their own. Here a message keeps its id, what
is stored already is not stored again, and the history comes from the session.
"""
