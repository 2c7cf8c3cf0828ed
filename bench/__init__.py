"""How fast the stores are, beside the raw limit of their backend and beside other projects: `python -m bench`."""
