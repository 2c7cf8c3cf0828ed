-- Values of a drawer in order of their names, from behind one on.
-- KEYS: values, names in order. ARGV: drawer, name or '', limit. No name is empty, and none holds the byte 255.
local names = redis.call(
  'ZRANGE', KEYS[2], '(' .. ARGV[1] .. ARGV[2], '(' .. ARGV[1] .. '\255', 'BYLEX', 'LIMIT', 0, ARGV[3]
)
if #names == 0 then return {} end
local found = {}
for _, name in ipairs(names) do
  found[#found + 1] = string.sub(name, #ARGV[1] + 1)
  found[#found + 1] = redis.call('HGET', KEYS[1], name)
end
return found
