-- Traces of turns by their numbers, newest first.
-- include: head
local _, limit, lowest, highest = struct.unpack('>i8i8i8i8', ARGV[5])
-- include: reach
return { 'ok', call('ZREVRANGEBYSCORE', TRACES, highest, lowest, 'LIMIT', 0, limit) }
