-- The ground of a new session: `facts`, `title` and `incarnation`.
-- All keys exist from now on, with a mark where nothing else is: while a cluster moves a slot it serves a call only
-- where all its keys are together, and a key that is nowhere is not together with the others.
-- Leftovers of an earlier session go. The first call is one that a server without memory refuses: after any other
-- write it would let the rest pass.
call('HSET', HEAD, 'f', facts)
call('UNLINK', unpack(KEYS))
call('HSET', HEAD, 'f', facts, 't', title, 'i', incarnation)
call('ZADD', LOG, 0, '-')
call('HSET', VARS, '-', '')
call('ZADD', TRACES, 0, '-')
