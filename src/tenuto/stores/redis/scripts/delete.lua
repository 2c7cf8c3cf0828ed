-- needs: head
-- Remove the session and everything of it.
local got, n = reach()
if not got then return n end
call('UNLINK', unpack(KEYS))
return { 'ok', got[2], got[3] }
