-- Remove all state of an owner; tell how many values there were. KEYS: values, names in order, drawers.
local values = redis.pcall('HLEN', KEYS[1])
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
return type(values) == 'number' and values or 0
