-- Tell caches that the caller did not know the version it changed, by a key that goes at once. Of changes close upon one
-- another a server tells but once; where all of them foresaw the version, they are of one writer.
local mixed = string.gsub(HEAD, ':h:{', ':b:{')
redis.pcall('HSET', mixed, '-', '')
redis.pcall('UNLINK', mixed)
