"""Keys, ciphers, and the vault: values that may be read again, by those who may."""
