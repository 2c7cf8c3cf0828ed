-- Makes commits, each as a whole or not at all; what came of each is in the answer.
-- KEYS: of each commit the records it changes, and the source of a copy.
-- ARGV: for each commit how many records and how many words; then four words for each record: the revision it must be
-- at, what of it to return if it is at another one, a deadline that must not be earlier than the one it has, and what
-- to do: 'w' write, 'i' write with columns, 'r' remove, 'a' set aside, 's' read as the source.
-- Then a list for each: how many words the fields to write are, and these; then 'm' puts an entry as a message, '-'
-- drops some, '<' copies messages, '*' drops everything, '.' ends.
-- include: entries
-- const: WORDS=4 GONE_MS=3000
local sub = string.sub

local function widen(ranges, part, number)
  local range = ranges[part]
  if range then
    range[1], range[2] = math.min(range[1], number), math.max(range[2], number)
  else
    ranges[part] = {number, number}
  end
end

local function drop(record, ranges, part, first, last, keep)
  local range, fields = ranges[part], {}
  if not range then return end
  ranges[part] = nil
  if range[1] < first then ranges[part] = {range[1], math.min(range[2], first - 1)} end
  if range[2] > last then widen(ranges, part, math.max(range[1], last + 1)) widen(ranges, part, range[2]) end
  for number = math.max(first, range[1]), math.min(last, range[2]) do
    if keep[number] then
      widen(ranges, part, number)
    else
      fields[#fields + 1] = part .. number
    end
    if #fields == AT_ONCE then
      call('HDEL', record, unpack(fields))
      fields = {}
    end
  end
  if fields[1] then call('HDEL', record, unpack(fields)) end
end

local function copy(record, ranges, source, through)
  local messages = read(source, ranges_of(call('HGET', source, 'r')).m, 'm', 0, through, math.huge)
  for n = 1, #messages, 2 do
    call('HSET', record, 'm' .. messages[n], messages[n + 1])
    widen(ranges, 'm', messages[n])
  end
end

-- Writes what the list at a place says, and returns where it ends.
local function write(record, ranges, source, at)
  local last = at + tonumber(ARGV[at])
  local fields, size = {unpack(ARGV, at + 1, last)}, last - at
  at = last + 1
  while ARGV[at] ~= '.' do
    local kind = ARGV[at]
    if kind == '*' then
      for part in pairs(ranges) do drop(record, ranges, part, 0, math.huge, {}) end
    elseif kind == '-' then
      local part, first, final, keep = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), {}
      at = at + 4
      while ARGV[at] ~= '' do
        keep[tonumber(ARGV[at])] = true
        at = at + 1
      end
      drop(record, ranges, part, first, final, keep)
    elseif kind == '<' then
      copy(record, ranges, source, tonumber(ARGV[at + 1]))
      at = at + 1
    else
      local number = tonumber(ARGV[at + 1])
      widen(ranges, kind, number)
      fields[size + 1], fields[size + 2] = kind .. number, ARGV[at + 2]
      size, at = size + 2, at + 2
      if size > AT_ONCE then
        call('HSET', record, unpack(fields))
        fields, size = {}, 0
      end
    end
    at = at + 1
  end
  fields[size + 1], fields[size + 2] = 'r', cmsgpack.pack(ranges)
  call('HSET', record, unpack(fields))
  return at
end

-- What keeps a commit from being made, if anything does; else the ranges of its records.
local function compare(records, key, at)
  local refused, moved, gone, lowered, ranges = false, 0, false, false, {}
  for n = 0, records - 1 do
    local words = at + WORDS * n
    local row, deadline = call('HMGET', KEYS[key + n], 'n', 'd', 'r', 'gone'), ARGV[words + 2]
    ranges[n] = ranges_of(row[3])
    if (row[1] and sub(row[1], 1, 8) or '') ~= ARGV[words] then
      refused = true
      if ARGV[words + 3] == 's' then moved = 1 end
    elseif row[4] then
      gone = true
    elseif row[1] and deadline ~= '' then
      lowered = lowered or not row[2] or row[2] == '' or tonumber(deadline) < tonumber(row[2])
    end
  end
  if not refused then return gone and {'gone'} or lowered and {'lowered'} or nil, ranges end
  local answer = {'refused', moved}
  for n = 0, records - 1 do
    local tail, message, page = string.match(ARGV[at + WORDS * n + 1], '(.*) (.*) (.*)')
    answer[n + 3] = standing(KEYS[key + n], tonumber(tail), tonumber(message), tonumber(page))
  end
  return answer
end

-- Makes the changes of a commit; returns the columns that records had where they change.
local function apply(records, key, at, ranges)
  local answer, list = {'made'}, at + WORDS * records
  for n = 0, records - 1 do
    local action, record = ARGV[at + WORDS * n + 3], KEYS[key + n]
    answer[n + 2] = action ~= 'w' and call('HGET', record, 'i') or ''
    if action == 'w' or action == 'i' then
      list = write(record, ranges[n], KEYS[key + records - 1], list)
    elseif action ~= 's' then
      if action == 'a' then
        call('RENAME', record, ARGV[list])
        list = list + 1
      else
        call('DEL', record)
      end
      call('HSET', record, 'gone', '1')
      call('PEXPIRE', record, GONE_MS)
    end
    list = list + 1
  end
  return answer
end

local answers, key, at = {}, 1, 1
while at <= #ARGV do
  local records = tonumber(ARGV[at])
  local obstacle, ranges = compare(records, key, at + 2)
  answers[#answers + 1] = obstacle or apply(records, key, at + 2, ranges)
  key, at = key + records, at + 2 + tonumber(ARGV[at + 1])
end
return answers
