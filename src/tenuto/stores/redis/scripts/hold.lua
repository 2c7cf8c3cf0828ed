-- Keeps a missing record from being created, or ('0') lets it. KEYS: the record. ARGV: for how many milliseconds.
if redis.call('HEXISTS', KEYS[1], 'n') == 1 then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[1] ~= '0' then
  redis.call('HSET', KEYS[1], 'gone', '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
