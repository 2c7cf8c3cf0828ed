-- Remove the session if it is the caller's, whether or not it has expired; tell how much it held.
-- include: head
now = -1
-- include: reach
local messages, traces = call('ZCARD', LOG) - 1, call('ZCARD', TRACES) - 1
call('UNLINK', unpack(KEYS))
-- include: gone
return { 'gone', owner, facts, messages, traces }
