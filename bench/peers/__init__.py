"""Other projects, each in its own words and with its own defaults. They run in an environment of their own.

Modules are imported by name, because the environment in which types are checked does not have them.
"""
