-- needs: head
-- Remove the session if it has not changed since it stood at this place of its shelf.
local _, at = struct.unpack('>i8i8', ARGV[5])
caller, now = '', -1
local got, n = reach()
if not got then return n end
if n[UPDATED] ~= at then return { 'moved', n[UPDATED] } end
call('UNLINK', unpack(KEYS))
return { 'gone', got[2], got[3] }
