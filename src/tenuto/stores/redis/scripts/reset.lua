-- Forget messages, traces, context, metadata and idempotency keys; title, attributes, totals and marks stay.
-- ARGV from 6 on: the names of variables that stay all the same.
-- include: head
local _, sparing = struct.unpack('>i8i8', ARGV[5])
-- include: reach
call('ZREMRANGEBYSCORE', LOG, 1, '+inf')
call('ZREMRANGEBYSCORE', TRACES, 1, '+inf')
-- include: gone
call('HDEL', HEAD, 'l', 'c')
for _, name in ipairs(n[KEYS_SEEN] > 0 and call('HKEYS', HEAD) or {}) do
  local kind = string.sub(name, 1, 1)
  if kind == 'k' or kind == 'r' then call('HDEL', HEAD, name) end
end
local spared = {}
for i = 6, 5 + sparing do spared[ARGV[i]] = true end
for _, name in ipairs(n[HAS_VARS] == 1 and call('HKEYS', VARS) or {}) do
  local kind = string.sub(name, 1, 1)
  if (kind == 'c' or kind == 'm') and not spared[name] then call('HDEL', VARS, name) end
end
n[KEYS_SEEN], n[LEASE_UNTIL], n[MESSAGES], n[WINDOW] = 0, -1, 0, n[SEQ] + 1
n[EPOCH] = n[EPOCH] + 1
local more, foreseen = {}, true  -- the key above tells more
-- include: changed
-- include: variables
return { 'ok', numbers, facts, title, variables }
