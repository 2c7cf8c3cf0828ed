-- Records at one moment. KEYS: the records.
-- ARGV: how many messages, and the numbers of the last message and the last page of keys that the caller holds.
-- include: entries
local found = {}
for n, record in ipairs(KEYS) do
  found[n] = standing(record, tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
end
return found
