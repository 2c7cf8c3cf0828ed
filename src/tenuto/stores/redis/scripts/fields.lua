-- One field of many heads at once, for searches and sums, which then read few heads as a whole or none.
-- KEYS: heads; ARGV: the field. An absent head, or a key of another type, is answered by nothing.
local values = {}
for i = 1, #KEYS do
  local value = redis.pcall('HGET', KEYS[i], ARGV[1])
  values[i] = type(value) == 'string' and value
end
return values
