-- Makes commits, each as a whole or not at all; what came of each is in the answer. One that the server does not let
-- through is answered with its error, and the others are made. Damaged records can only be removed and set aside.
-- KEYS: of each commit the records it changes, and the source of a copy.
-- ARGV: the process that writes; for each commit how many records and how many words; then four words for each record: the revision it must be
-- at, what of it to return if it is at another one, a deadline that must not be earlier than the one it has, and what
-- to do: 'w' write, 'i' write with columns, 'f' that and forget the words it is found by, 'r' remove, 'a' set aside, 's' read as the source.
-- Then a list for each: how many words the fields to write are, and these; then 'm' puts an entry as a message, '-'
-- drops some, '<' copies messages and attachments, '*' drops everything, 'W' changes the words it is found by, '+' adds to an index on the same server, '.' ends.
-- A record that many processes change has a queue, field 'q': until when the first of them may commit, and for each
-- process its name and what of the record to tell it when its turn comes. The others are told to wait.
-- include: entries
-- const: WORD_BYTES=6 WORDS=4 GONE_MS=3000 TURN_MS=100
local sub, writer = string.sub, ARGV[1]

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
  -- A server that denies this must do so before anything is dropped.
  call('HSET', record, 'r', cmsgpack.pack(ranges))
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

local function copy(record, ranges, source, first, through, attachments)
  local messages = read(source, ranges_of(source, call('HGET', source, 'r')).m, 'm', first, through, math.huge)
  for n = 1, #messages, 2 do
    call('HSET', record, 'm' .. messages[n], messages[n + 1])
    widen(ranges, 'm', messages[n])
  end
  for _, number in ipairs(attachments) do
    local body = call('HGET', source, 'b' .. number)
    if body then
      call('HSET', record, 'b' .. number, body)
      widen(ranges, 'b', number)
    end
  end
end

local function each_word(packed, tell)
  for from = 1, #packed, WORD_BYTES do tell(sub(packed, from, from + WORD_BYTES - 1)) end
end

-- Adds members to an index on the same server, or removes them.
local function change_places(index, add, words, place)
  if index == '' then return end
  for from = 1, #words, AT_ONCE do
    local members = {}
    for n = from, math.min(#words, from + AT_ONCE - 1) do
      if add then members[#members + 1] = 0 end
      members[#members + 1] = words[n] .. place
    end
    call(add and 'ZADD' or 'ZREM', index, unpack(members))
  end
end

-- The words that a record is found by from now on: the list at a place says by which besides, and by which no more.
local function change_words(record, at)
  local index, place, forgets = ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1'
  local removed, kept, added, gone, has = {}, {}, {}, {}, {}
  each_word(ARGV[at + 3], function(word) removed[word] = true end)
  each_word(call('HGET', record, 'w') or '', function(word)
    local list = (forgets or removed[word]) and gone or kept
    list[#list + 1] = word
    has[word] = list == kept
  end)
  each_word(ARGV[at + 4], function(word)
    if not has[word] then
      added[#added + 1], has[word] = word, true
      kept[#kept + 1] = word
    end
  end)
  change_places(index, false, gone, place)
  change_places(index, true, added, place)
  return table.concat(kept)
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
    elseif kind == 'W' then
      fields[size + 1], fields[size + 2] = 'w', change_words(record, at + 1)
      size, at = size + 2, at + 5
    elseif kind == '+' then
      local words = tonumber(ARGV[at + 1])
      call(unpack(ARGV, at + 2, at + 1 + words))
      at = at + 1 + words
    elseif kind == '<' then
      local first, through, attachments = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), {}
      at = at + 3
      while ARGV[at] ~= '' do
        attachments[#attachments + 1] = tonumber(ARGV[at])
        at = at + 1
      end
      copy(record, ranges, source, first, through, attachments)
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

local function milliseconds()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function standing_for(record, asked)
  local tail, message, page = string.match(asked, '(%S+) (%S+) (%S+)')
  return standing(record, tonumber(tail), tonumber(message), tonumber(page))
end

-- A value as the server would answer it.
local function encode(value)
  if type(value) == 'string' then return '$' .. #value .. '\r\n' .. value .. '\r\n' end
  if type(value) == 'number' then return ':' .. value .. '\r\n' end
  if not value then return '$-1\r\n' end
  local parts = {'*' .. #value .. '\r\n'}
  for _, part in ipairs(value) do parts[#parts + 1] = encode(part) end
  return table.concat(parts)
end

-- Stores the queue, whose first process may commit now, and tells it what stands.
local function announce(record, queue)
  queue[1] = milliseconds() + TURN_MS
  call('HSET', record, 'q', cmsgpack.pack(queue))
  if queue[2] ~= writer then
    redis.pcall('PUBLISH', queue[2], encode({record, standing_for(record, queue[3])}))
  end
end

local function leave(queue, place)
  table.remove(queue, place)
  table.remove(queue, place)
end

-- Whether the writer must wait, since others are before it. One that lets its time pass leaves the queue.
local function must_wait(record, packed, asked)
  local queue, place = cmsgpack.unpack(packed), nil
  if queue[2] == writer then return false end
  for n = 2, #queue, 2 do place = place or queue[n] == writer and n or nil end
  if not place then queue[#queue + 1] = writer queue[#queue + 1] = asked end
  if queue[1] < milliseconds() then
    leave(queue, 2)
    announce(record, queue)
    return queue[2] ~= writer
  end
  if not place then call('HSET', record, 'q', cmsgpack.pack(queue)) end
  return true
end

-- Gives the writer the turn if it asks for it, after conflicts in a row.
local function take_turn(record, asked)
  if sub(asked, -1) ~= '!' then return 0 end
  announce(record, {0, writer, asked})
  return 1
end

-- Ends the turn of the writer after its commit.
local function pass_on(record)
  local queue = cmsgpack.unpack(call('HGET', record, 'q'))
  if queue[2] == writer then leave(queue, 2) end
  if queue[2] then
    announce(record, queue)
  else
    call('HDEL', record, 'q')
  end
end

-- What keeps a commit from being made, if anything does; else the ranges of its records and their queue.
local function compare(records, key, at)
  local refused, moved, gone, lowered, ranges, queue = false, 0, false, false, {}, false
  for n = 0, records - 1 do
    local words = at + WORDS * n
    local row, deadline = call('HMGET', KEYS[key + n], 'n', 'd', 'r', 'gone', 'q'), ARGV[words + 2]
    local action = ARGV[words + 3]
    ranges[n], queue = ranges_of(KEYS[key + n], row[3]), queue or row[5]
    local unfit = not ranges[n] and action ~= 'r' and action ~= 'a'
    if unfit or (row[1] and sub(row[1], 1, 8) or '') ~= ARGV[words] then
      refused = true
      if action == 's' then moved = 1 end
    elseif row[4] then
      gone = true
    elseif row[1] and deadline ~= '' then
      lowered = lowered or not row[2] or row[2] == '' or tonumber(deadline) < tonumber(row[2])
    end
  end
  if records == 1 and queue and must_wait(KEYS[key], queue, ARGV[at + 1]) then return {'wait'} end
  if not refused then return gone and {'gone'} or lowered and {'lowered'} or nil, ranges, queue end
  local answer = {'refused', moved, 0}
  for n = 0, records - 1 do
    answer[n + 4] = standing_for(KEYS[key + n], ARGV[at + WORDS * n + 1])
  end
  if records == 1 and answer[4] then answer[3] = take_turn(KEYS[key], ARGV[at + 1]) end
  return answer
end

local function held(record, action)
  local columns = action ~= 'w' and call('HGET', record, 'i')
  return columns and {columns, action ~= 'i' and call('HGET', record, 'w') or ''} or ''
end

-- Makes the changes of a commit; returns the columns that records had where they change, and the words that are gone.
local function apply(records, key, at, ranges)
  local answer, list = {'made'}, at + WORDS * records
  for n = 0, records - 1 do
    local action, record = ARGV[at + WORDS * n + 3], KEYS[key + n]
    answer[n + 2] = held(record, action)
    if action == 'w' or action == 'i' or action == 'f' then
      list = write(record, ranges[n], KEYS[key + records - 1], list)
    elseif action ~= 's' then
      if action == 'a' then
        call('RENAME', record, ARGV[list])
        list = list + 1
      else
        call('DEL', record)
      end
      redis.pcall('HSET', record, 'gone', '1')
      redis.pcall('PEXPIRE', record, GONE_MS)
    end
    list = list + 1
  end
  return answer
end

local function make(records, key, at)
  local obstacle, ranges, queue = compare(records, key, at)
  local answer = obstacle or apply(records, key, at, ranges)
  if queue and not obstacle and records == 1 and call('HEXISTS', KEYS[key], 'q') == 1 then pass_on(KEYS[key]) end
  return answer
end

local answers, key, at = {}, 1, 2
while at <= #ARGV do
  local records = tonumber(ARGV[at])
  local ended, answer = pcall(make, records, key, at + 2)
  if not ended then
    answer = {'failed', type(answer) == 'table' and answer.err or answer}
    -- Another server may make them.
    if string.find(answer[2], '^-?READONLY') then return redis.error_reply(answer[2]) end
  end
  answers[#answers + 1] = answer
  key, at = key + records, at + 2 + tonumber(ARGV[at + 1])
end
return answers
