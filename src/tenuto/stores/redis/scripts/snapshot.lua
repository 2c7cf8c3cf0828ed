-- needs: head
-- What a fork copies: the head, and the log up to a sequence number.
local _, at = struct.unpack('>i8i8', ARGV[5])
local got, n = reach()
if not got then return n end
return { 'ok', got[1], got[3], got[4], variables(n), 0, call('ZRANGEBYSCORE', LOG, 1, at < 0 and '+inf' or at) }
