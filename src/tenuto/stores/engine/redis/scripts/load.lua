-- Records at one moment. KEYS: of each its hash and the stem of its entries.
-- ARGV: how many messages, and the numbers of the last message and the last page of keys that the caller holds.
local call = redis.call
-- include: standing
local found = {}
for n = 1, #KEYS, 2 do
  found[#found + 1] = standing(KEYS[n], KEYS[n + 1], ARGV[1], ARGV[2], ARGV[3])
end
return found
