-- needs: head
-- What a fork copies: the head, and the log up to a sequence number.
local _, at = struct.unpack('>dd', ARGV[1])
local got, n = reach()
if not got then return n end
return { 'ok', got[1], got[3], got[4], variables(n), 0, call('ZRANGEBYSCORE', LOG, '-inf', at < 0 and '+inf' or at) }
