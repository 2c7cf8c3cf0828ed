-- Values in order of their names, from behind one on. KEYS: values, names in order. ARGV: name or '', limit.
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local names = redis.call('ZRANGE', KEYS[2], from, '+', 'BYLEX', 'LIMIT', 0, ARGV[2])
if #names == 0 then return {} end
local found = {}
for _, name in ipairs(names) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('HGET', KEYS[1], name)
end
return found
