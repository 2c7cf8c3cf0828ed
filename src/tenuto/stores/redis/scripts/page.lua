-- Entries of a part, with the revision they are of; of a damaged record none of any revision. KEYS: the record.
-- ARGV: the part, the first and the last number, and how many; with a negative limit the last ones, in descending order.
-- include: entries
local row = call('HMGET', KEYS[1], 'n', 'r')
local ranges = ranges_of(KEYS[1], row[2])
if not row[1] or not ranges then return false end
return {row[1], read(KEYS[1], ranges[ARGV[1]], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))}
