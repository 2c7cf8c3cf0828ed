-- Remove the session and everything of it.
-- include: head
-- include: reach
call('UNLINK', unpack(KEYS))
return { 'ok', owner, facts }
