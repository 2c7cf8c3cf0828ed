"""Apps that know nothing of sessions: what their requests say of the conversation, its user and its purpose.

Everything here reads one request and decides nothing else: `read_app_request` is the door into it.
"""
