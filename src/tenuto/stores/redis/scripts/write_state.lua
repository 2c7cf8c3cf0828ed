-- Set one value, if its version is the expected one; tell whether its owner had none at all.
-- KEYS: values, names in order, drawers. ARGV: drawer and name, value, expected version or '', drawer, its note or '',
-- '1' where the owner has just been listed or ''. A drawer without a note is new: there nothing is written without it.
-- A value is kept as "format:version:JSON".
local raw = redis.call('HGET', KEYS[1], ARGV[1])
local version = 0
if raw then
  version = tonumber(string.match(raw, '^1:(%d+):'))
  if not version then return { 'corrupt' } end
end
if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= version then return { 'version', version } end
if ARGV[5] ~= '' and ARGV[6] == '' and redis.call('HEXISTS', KEYS[3], ARGV[4]) == 0 then return { 'new' } end
local first = 1 - redis.call('EXISTS', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], string.format('1:%.0f:', version + 1) .. ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[4], ARGV[5]) end
return { 'ok', version + 1, first }
