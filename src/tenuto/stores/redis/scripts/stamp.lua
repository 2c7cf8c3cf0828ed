-- The numbers of a head as they stand, '' where there are none: what a later script compares with.
local seen = redis.pcall('HGET', KEYS[1], 's')
return type(seen) == 'string' and seen or ''
