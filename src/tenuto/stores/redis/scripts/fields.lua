-- Some fields of several records. KEYS: their hashes. ARGV: the names of the fields.
local found = {}
for n, record in ipairs(KEYS) do found[n] = redis.call('HMGET', record, unpack(ARGV)) end
return found
