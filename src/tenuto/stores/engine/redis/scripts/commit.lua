-- Makes commits, each as a whole or not at all; what came of each is in the answer.
-- KEYS: of each commit the records it changes, by their hash and the stem of their entries, and the source of a copy.
-- ARGV: for each commit how many records and how many words; then four words for each record: the revision it must be
-- at, what of it to return if it is at another one, a deadline that must not be earlier than the one it has, and what
-- to do: 'w' write, 'i' write with columns, 'r' remove, 'a' set aside, 's' read as the source.
-- Then a list for each: how many words the fields to write are, and these; then 'm5' puts an entry as message 5, '-'
-- drops some, '<9' copies up to message 9, '*' drops everything, '.' ends.
local call, sub = redis.call, string.sub
-- const: WORDS=4 PARTS='mtkpbvw' GONE_MS=3000
-- include: standing

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

local function copy(source, entries, through)
  local messages = call('ZRANGEBYSCORE', source .. ':m', '-inf', through, 'WITHSCORES')
  for n = 1, #messages, 2 do call('ZADD', entries .. ':m', messages[n + 1], messages[n]) end
end

-- Writes what the list at a place says, and returns where it ends.
local function write(record, entries, source, at)
  local last = at + tonumber(ARGV[at])
  call('HSET', record, unpack(ARGV, at + 1, last))
  at = last + 1
  while ARGV[at] ~= '.' do
    local kind, rest = sub(ARGV[at], 1, 1), sub(ARGV[at], 2)
    if kind == '*' then
      each_part(entries, function(name) call('DEL', name) end)
    elseif kind == '-' then
      at = drop(entries, at + 1)
    elseif kind == '<' then
      copy(source, entries, rest)
    else
      local name = entries .. ':' .. kind
      call('ZREMRANGEBYSCORE', name, rest, rest)
      call('ZADD', name, rest, ARGV[at + 1])
      at = at + 1
    end
    at = at + 1
  end
  return at
end

-- Ends a record: removes it, or renames it and its entries.
local function finish(record, entries, aside)
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
end

-- What keeps a commit from being made, if anything does.
local function compare(records, key, at)
  local refused, moved, gone, lowered = false, 0, false, false
  for n = 0, records - 1 do
    local words = at + WORDS * n
    local row, deadline = call('HMGET', KEYS[key + 2 * n], 'n', 'd'), ARGV[words + 2]
    if (row[1] and sub(row[1], 1, 8) or '') ~= ARGV[words] then
      refused = true
      if ARGV[words + 3] == 's' then moved = 1 end
    elseif not row[1] then
      gone = gone or call('EXISTS', KEYS[key + 2 * n + 1] .. ':gone') == 1
    elseif deadline ~= '' then
      lowered = lowered or not row[2] or row[2] == '' or tonumber(deadline) < tonumber(row[2])
    end
  end
  if not refused then return gone and {'gone'} or lowered and {'lowered'} or nil end
  local answer = {'refused', moved}
  for n = 0, records - 1 do
    local tail, message, page = string.match(ARGV[at + WORDS * n + 1], '(.*) (.*) (.*)')
    answer[n + 3] = standing(KEYS[key + 2 * n], KEYS[key + 2 * n + 1], tail, message, page)
  end
  return answer
end

-- Makes the changes of a commit; returns the columns that records had where they change.
local function apply(records, key, at)
  local answer, list = {'made'}, at + WORDS * records
  for n = 0, records - 1 do
    local action, record, entries = ARGV[at + WORDS * n + 3], KEYS[key + 2 * n], KEYS[key + 2 * n + 1]
    answer[n + 2] = action ~= 'w' and call('HGET', record, 'i') or ''
    if action == 'w' or action == 'i' then
      list = write(record, entries, KEYS[key + 2 * records - 1], list)
    elseif action == 'r' then
      finish(record, entries)
    elseif action == 'a' then
      finish(record, entries, ARGV[list])
      list = list + 1
    end
    list = list + 1
  end
  return answer
end

local answers, key, at = {}, 1, 1
while at <= #ARGV do
  local records = tonumber(ARGV[at])
  answers[#answers + 1] = compare(records, key, at + 2) or apply(records, key, at + 2)
  key, at = key + 2 * records, at + 2 + tonumber(ARGV[at + 1])
end
return answers
