-- What a fork copies: the head, and the log up to a sequence number.
-- include: head
local _, at = struct.unpack('>i8i8', ARGV[5])
-- include: reach
-- include: variables
return { 'ok', raw, facts, title, variables, call('ZRANGEBYSCORE', LOG, 1, at < 0 and '+inf' or at) }
