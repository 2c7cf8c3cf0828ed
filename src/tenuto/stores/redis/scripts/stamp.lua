-- The numbers of a head as they stand, which a later script compares with, and its facts; '' where there are none.
local function field(name)
  local seen = redis.pcall('HGET', KEYS[1], name)
  return type(seen) == 'string' and seen or ''
end
return { field('s'), field('f') }
