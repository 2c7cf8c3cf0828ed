"""The routes of the OpenAI API: conversations, responses, chat completions, models and embeddings.

A conversation is a session and an item a message, so there is no second store behind these routes. They are not in our
OpenAPI document: OpenAI's own describes them.
"""
