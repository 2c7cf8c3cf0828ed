-- Remove the session if it has not changed since it stood at this place of its shelf.
-- include: head
local _, at = struct.unpack('>i8i8', ARGV[5])
caller, now = '', -1
-- include: reach
if n[UPDATED] ~= at then return { 'moved', n[UPDATED] } end
call('UNLINK', unpack(KEYS))
-- include: gone
return { 'gone', owner, facts }
