"""Privacy requests: scan stored data, reveal values, erase a user, and audit all of it."""
