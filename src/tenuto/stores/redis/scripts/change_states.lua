-- Set and remove values of one drawer, all or none, if their versions are the expected ones; tell whether the owner had
-- none at all.
-- KEYS: values, names in order, drawers. ARGV: drawer, its note or '', '1' where the owner has just been listed or '',
-- then for each change drawer and name, value or '' to remove it, expected version or ''. A drawer without a note is
-- new: there nothing is written without it. A value is kept as "format:version:JSON".
local versions, writes = {}, false
for at = 4, #ARGV, 3 do
  local raw = redis.call('HGET', KEYS[1], ARGV[at])
  local version = 0
  if raw then version = tonumber(string.match(raw, '^1:(%d+):')) end
  if not version and (ARGV[at + 1] ~= '' or ARGV[at + 2] ~= '') then return { 'corrupt' } end
  if ARGV[at + 2] ~= '' and tonumber(ARGV[at + 2]) ~= version then return { 'version', (at - 4) / 3, version } end
  versions[at], writes = version, writes or ARGV[at + 1] ~= ''
end
if writes and ARGV[2] ~= '' and ARGV[3] == '' and redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then return { 'new' } end
local first = writes and 1 - redis.call('EXISTS', KEYS[1]) or 0
local done = { 'ok', first }
for at = 4, #ARGV, 3 do
  if ARGV[at + 1] == '' then
    redis.call('ZREM', KEYS[2], ARGV[at])
    done[#done + 1] = redis.call('HDEL', KEYS[1], ARGV[at])
  else
    redis.call('HSET', KEYS[1], ARGV[at], string.format('1:%.0f:', versions[at] + 1) .. ARGV[at + 1])
    redis.call('ZADD', KEYS[2], 0, ARGV[at])
    done[#done + 1] = versions[at] + 1
  end
end
if writes then
  if ARGV[2] ~= '' then redis.call('HSET', KEYS[3], ARGV[1], ARGV[2]) end
elseif redis.call('ZLEXCOUNT', KEYS[2], '[' .. ARGV[1], '(' .. ARGV[1] .. '\255') == 0 then
  redis.call('HDEL', KEYS[3], ARGV[1])
end
return done
