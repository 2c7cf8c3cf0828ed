-- Makes all changes of a commit, or none.
-- KEYS: of each change the record's hash and the stem of its entries; behind them those of a copy's source.
-- ARGV: the number of changes; '1' if earlier deadlines are indexed; the source's revision or '', and the last number
-- to copy. Then what to compare, five for each change: revision, tail, known message, known page, deadline. Then what
-- to do: an action, and what belongs to it.
local call, sub = redis.call, string.sub
local changes, indexed = tonumber(ARGV[1]), ARGV[2] == '1'
-- const: COMPARED=5 GONE_MS=3000
-- include: standing

local function revision(record)
  local numbers = call('HGET', record, 'n')
  return numbers and sub(numbers, 1, 8) or ''
end

local moved = ARGV[3] ~= '' and revision(KEYS[2 * changes + 1]) ~= ARGV[3]
local refused, gone, lowered = moved, false, false
local at = 4
for n = 1, changes do
  local row = call('HMGET', KEYS[2 * n - 1], 'n', 'd')
  local expected, deadline = ARGV[at + 1], ARGV[at + 5]
  if (row[1] and sub(row[1], 1, 8) or '') ~= expected then
    refused = true
  elseif not row[1] then
    gone = gone or call('EXISTS', KEYS[2 * n] .. ':gone') == 1
  elseif not indexed and deadline ~= '' then
    lowered = lowered or not row[2] or row[2] == '' or tonumber(deadline) < tonumber(row[2])
  end
  at = at + COMPARED
end
if refused then
  local answer = {'refused', moved and 1 or 0}
  for n = 1, changes do
    local compared = 4 + (n - 1) * COMPARED
    answer[n + 2] = standing(
      KEYS[2 * n - 1], KEYS[2 * n], ARGV[compared + 2], ARGV[compared + 3], ARGV[compared + 4])
  end
  return answer
end
if gone then return {'gone'} end
if lowered then return {'lowered'} end

local function take(count)
  at = at + (count or 1)
  return ARGV[at]
end

local function remove_entries(entries)
  for part in string.gmatch('mtkpbvw', '.') do call('DEL', entries .. ':' .. part) end
end

local function drop(entries)
  local name, first, last = entries .. ':' .. take(), take(), take()
  local kept = {}
  for _ = 1, tonumber(take()) do
    local number = take()
    kept[#kept + 1] = {number, call('ZRANGEBYSCORE', name, number, number)[1]}
  end
  call('ZREMRANGEBYSCORE', name, first, last)
  for _, entry in ipairs(kept) do
    if entry[2] then call('ZADD', name, entry[1], entry[2]) end
  end
end

local function copy(entries)
  local found = call('ZRANGEBYSCORE', KEYS[#KEYS] .. ':m', '-inf', ARGV[4], 'WITHSCORES')
  for n = 1, #found, 2 do call('ZADD', entries .. ':m', found[n + 1], found[n]) end
end

-- What a change does: 'w' its fields and entries; 'i' the same, where columns change; 'n' in place of all entries.
local function write(action, record, entries)
  local old = action ~= 'w' and call('HGET', record, 'i') or ''
  if action == 'n' then remove_entries(entries) end
  local fields = tonumber(take())
  call('HSET', record, unpack(ARGV, at + 1, at + fields))
  take(fields)
  for _ = 1, tonumber(take()) do drop(entries) end
  if take() == '1' then copy(entries) end
  for _ = 1, tonumber(take()) do
    local name, number = entries .. ':' .. take(), take()
    call('ZREMRANGEBYSCORE', name, number, number)
    call('ZADD', name, number, take())
  end
  return old or ''
end

local function remove(record, entries)
  local old = call('HGET', record, 'i')
  call('DEL', record)
  remove_entries(entries)
  call('SET', entries .. ':gone', '', 'PX', GONE_MS)
  return old or ''
end

local function set_aside(record, entries)
  local old, aside = call('HGET', record, 'i'), take()
  call('RENAME', record, aside)
  for part in string.gmatch('mtkpbvw', '.') do
    local name = entries .. ':' .. part
    if call('EXISTS', name) == 1 then call('RENAME', name, aside .. ':' .. part) end
  end
  call('SET', entries .. ':gone', '', 'PX', GONE_MS)
  return old or ''
end

local answer = {'made'}
for n = 1, changes do
  local action, record, entries = take(), KEYS[2 * n - 1], KEYS[2 * n]
  if action == 'r' then
    answer[n + 1] = remove(record, entries)
  elseif action == 'a' then
    answer[n + 1] = set_aside(record, entries)
  else
    answer[n + 1] = write(action, record, entries)
  end
end
return answer
