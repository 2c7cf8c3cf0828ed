-- Makes all changes of a commit, or none.
-- KEYS: of each change the record's hash and the stem of its entries; the last may be the source of a copy.
-- ARGV: the number of changes; then four words for each: the revision it must be at, what of the record to return if it
-- is at another one, a deadline that must not be an earlier one, and what to do: 'w' write, 'r' remove, 'a' set aside,
-- 's' read as the source. Behind them what to write, a list for each change: '=n' sets the field n, 'm5' puts an entry
-- as message 5, '-' drops, '<' copies, '*' drops everything, '.' ends.
local call, sub = redis.call, string.sub
local changes = tonumber(ARGV[1])
-- const: WORDS=4 PARTS='mtkpbvw' GONE_MS=3000
-- include: standing

local refused, moved, gone, lowered = false, 0, false, false
for n = 1, changes do
  local at = 2 + WORDS * (n - 1)
  local row, deadline = call('HMGET', KEYS[2 * n - 1], 'n', 'd'), ARGV[at + 2]
  if (row[1] and sub(row[1], 1, 8) or '') ~= ARGV[at] then
    refused = true
    if ARGV[at + 3] == 's' then moved = 1 end
  elseif not row[1] then
    gone = gone or call('EXISTS', KEYS[2 * n] .. ':gone') == 1
  elseif deadline ~= '' then
    lowered = lowered or not row[2] or row[2] == '' or tonumber(deadline) < tonumber(row[2])
  end
end
if refused then
  local answer = {'refused', moved}
  for n = 1, changes do
    local tail, message, page = string.match(ARGV[3 + WORDS * (n - 1)], '(.*) (.*) (.*)')
    answer[n + 2] = standing(KEYS[2 * n - 1], KEYS[2 * n], tail, message, page)
  end
  return answer
end
if gone then return {'gone'} end
if lowered then return {'lowered'} end

local function each_part(entries, what)
  for part in string.gmatch(PARTS, '.') do what(entries .. ':' .. part, part) end
end

-- Drops a range of entries: part, first, last, and the numbers to keep up to an empty word.
local function drop(entries, at)
  local name, kept = entries .. ':' .. ARGV[at], {}
  local last = at + 3
  while ARGV[last] ~= '' do
    local entry = call('ZRANGEBYSCORE', name, ARGV[last], ARGV[last])[1]
    if entry then kept[#kept + 1] = ARGV[last] kept[#kept + 1] = entry end
    last = last + 1
  end
  call('ZREMRANGEBYSCORE', name, ARGV[at + 1], ARGV[at + 2])
  if kept[1] then call('ZADD', name, unpack(kept)) end
  return last
end

local function copy(entries, through)
  local messages = call('ZRANGEBYSCORE', KEYS[#KEYS] .. ':m', '-inf', through, 'WITHSCORES')
  for n = 1, #messages, 2 do call('ZADD', entries .. ':m', messages[n + 1], messages[n]) end
end

local at = 2 + WORDS * changes
local function write(record, entries)
  local fields, columns = {}, ''
  while ARGV[at] ~= '.' do
    local word = ARGV[at]
    local kind, rest = sub(word, 1, 1), sub(word, 2)
    if kind == '=' then
      if rest == 'i' then columns = call('HGET', record, 'i') or '' end
      fields[#fields + 1] = rest
      fields[#fields + 1] = ARGV[at + 1]
      at = at + 1
    elseif kind == '*' then
      each_part(entries, function(name) call('DEL', name) end)
    elseif kind == '-' then
      at = drop(entries, at + 1)
    elseif kind == '<' then
      copy(entries, rest)
    else
      local name = entries .. ':' .. kind
      call('ZREMRANGEBYSCORE', name, rest, rest)
      call('ZADD', name, rest, ARGV[at + 1])
      at = at + 1
    end
    at = at + 1
  end
  call('HSET', record, unpack(fields))
  return columns
end

-- Ends a record: removes it, or renames it and its entries to the name that its list begins with.
local function finish(record, entries, aside)
  local columns = call('HGET', record, 'i') or ''
  if aside then
    call('RENAME', record, aside)
    each_part(entries, function(name, part)
      if call('EXISTS', name) == 1 then call('RENAME', name, aside .. ':' .. part) end
    end)
  else
    call('DEL', record)
    each_part(entries, function(name) call('DEL', name) end)
  end
  call('SET', entries .. ':gone', '', 'PX', GONE_MS)
  return columns
end

local answer = {'made'}
for n = 1, changes do
  local action, record, entries = ARGV[5 + WORDS * (n - 1)], KEYS[2 * n - 1], KEYS[2 * n]
  if action == 'w' then
    answer[n + 1] = write(record, entries)
  elseif action == 'r' then
    answer[n + 1] = finish(record, entries)
  elseif action == 'a' then
    answer[n + 1] = finish(record, entries, ARGV[at])
    at = at + 1
  end
  at = at + 1
end
return answer
