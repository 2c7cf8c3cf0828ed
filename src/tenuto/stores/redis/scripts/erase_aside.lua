-- Remove a session that was set aside, with the note about it; tell how much it held, and its facts as far as they can
-- be read. KEYS: head, log, vars and traces under the names they are kept by, and the note.
local function count(key)
  local found = redis.pcall('ZCARD', key)
  return type(found) == 'number' and math.max(0, found - 1) or 0
end
local facts = redis.pcall('HGET', KEYS[1], 'f')
local messages, traces = count(KEYS[2]), count(KEYS[4])
return { redis.call('UNLINK', unpack(KEYS)), messages, traces, type(facts) == 'string' and facts or '' }
