-- Names of an owner's state from behind one on: for each the note of its drawer, or '', and drawer and name.
-- KEYS: names in order, drawers. ARGV: drawer and name or '', limit. A drawer is sixteen bytes.
local names = redis.call('ZRANGE', KEYS[1], ARGV[1] == '' and '-' or '(' .. ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
local found = {}
for _, name in ipairs(names) do
  found[#found + 1] = redis.call('HGET', KEYS[2], string.sub(name, 1, 16)) or ''
  found[#found + 1] = name
end
return found
