-- Holds a missing record off while its places in the indexes are removed. KEYS: the record and the stem of its entries.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[2] .. ':gone', '', 'PX', 3000)
return 1
