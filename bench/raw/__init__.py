"""The raw limit: what a driver does when nothing stands between it and the messages.

Raw contenders take the same words, store JSON of the same shape and size as ours and give back plain dictionaries; they
know no scope, lease, idempotency, totals or expiry.
"""
