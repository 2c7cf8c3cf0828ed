"""Keys, ciphers, and the vault of pseudonymized values."""
