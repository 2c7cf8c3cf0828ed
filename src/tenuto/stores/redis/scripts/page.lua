-- Entries of a part, with the revision they are of. KEYS: the record.
-- ARGV: the part, the first and the last number, and how many; with a negative limit the last ones, in descending order.
-- include: entries
local row = call('HMGET', KEYS[1], 'n', 'r')
if not row[1] then return false end
local range = ranges_of(row[2])[ARGV[1]]
return {row[1], read(KEYS[1], range, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))}
