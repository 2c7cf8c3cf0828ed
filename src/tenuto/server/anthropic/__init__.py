"""The routes of Anthropic's API: messages, their size, and the list of models.

A request brings its whole conversation, as chat completions do, and is answered by the same assistants and models. The
routes are not described in our OpenAPI document: Anthropic's own describes them.
"""
