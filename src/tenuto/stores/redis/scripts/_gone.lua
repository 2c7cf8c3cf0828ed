-- Tell caches that something was taken away, by a key that goes at once. The head alone does not tell it: of changes
-- close upon one another a server tells but once, and not what they were nor whose.
-- Behind the first write, since a server without memory would refuse this one before it. The key is none of the
-- call's, since it is nowhere: while a cluster moves its slot it cannot be told, and the rest must not fail for it.
local gone = string.gsub(HEAD, ':h:{', ':g:{')
redis.pcall('HSET', gone, '-', '')
redis.pcall('UNLINK', gone)
