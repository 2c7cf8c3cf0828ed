-- Remove the session and everything of it.
-- include: head
-- include: reach
call('UNLINK', unpack(KEYS))
-- include: gone
return { 'ok', owner, facts }
