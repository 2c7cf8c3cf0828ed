-- All that is stored of a session, or of its head alone: head, variables; log, traces.
-- KEYS: head, log, vars, traces. ARGV: '1' for all of it.
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return {} end
local head = ARGV[1] == '1' and call('HGETALL', KEYS[1]) or call('HMGET', KEYS[1], 's', 'f', 't', 'l', 'c')
if ARGV[1] ~= '1' then return { head, call('HGETALL', KEYS[3]) } end
return { head, call('HGETALL', KEYS[3]), call('ZRANGEBYSCORE', KEYS[2], 1, '+inf'),
  call('ZRANGEBYSCORE', KEYS[4], 1, '+inf', 'WITHSCORES') }
