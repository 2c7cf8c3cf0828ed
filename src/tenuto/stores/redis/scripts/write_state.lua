-- Set one value, if its version is the expected one.
-- KEYS: values, names in order. ARGV: drawer and name, value, expected version or ''.
-- A value is kept as "format:version:JSON".
local raw = redis.call('HGET', KEYS[1], ARGV[1])
local version = 0
if raw then
  version = tonumber(string.match(raw, '^1:(%d+):'))
  if not version then return { 'corrupt' } end
end
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then return { 'version', version } end
redis.call('HSET', KEYS[1], ARGV[1], string.format('1:%.0f:', version + 1) .. ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return { 'ok', version + 1 }
