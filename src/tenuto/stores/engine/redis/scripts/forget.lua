-- Removes a record that was set aside. KEYS: the stem of its names. Returns its sums, and how many traces it had.
local sums = redis.call('HGET', KEYS[1], 'n')
local traces = redis.call('ZCARD', KEYS[1] .. ':t')
redis.call('DEL', KEYS[1])
for part in string.gmatch('mtkpbvw', '.') do redis.call('DEL', KEYS[1] .. ':' .. part) end
return {sums, traces}
