-- Entries are fields of a record's hash, 'm5' for message 5. Field 'r' holds the first and the last number of each part.
local call = redis.call
-- const: AT_ONCE=1000

-- Nothing if they are damaged, which does not matter to a value: it has no profile, and no entries.
local function ranges_of(record, packed)
  local sound, ranges = pcall(cmsgpack.unpack, packed or '\128')
  sound = sound and type(ranges) == 'table'
  for _, range in pairs(sound and ranges or {}) do
    sound = sound and type(range) == 'table' and tonumber(range[1]) and tonumber(range[2])
  end
  if sound then return ranges end
  return call('HEXISTS', record, 'p') == 0 and {} or nil
end

-- Entries from one number to another as a row of numbers and bodies; with a negative limit from the last one down.
local function read(record, range, part, first, last, limit)
  local found, left = {}, math.abs(limit)
  if not range then return found end
  local step = limit < 0 and -1 or 1
  local at, stop = math.max(first, range[1]), math.min(last, range[2])
  if step < 0 then at, stop = stop, at end
  while left > 0 and (stop - at) * step >= 0 do
    local fields, numbers = {}, {}
    for n = at, at + step * (math.min(left, AT_ONCE, (stop - at) * step + 1) - 1), step do
      numbers[#numbers + 1], fields[#fields + 1] = n, part .. n
    end
    for place, body in ipairs(call('HMGET', record, unpack(fields))) do
      if body then
        found[#found + 1], found[#found + 2] = numbers[place], body
        left = left - 1
      end
    end
    at = at + step * #fields
  end
  return found
end

-- A record with its newest messages and the parts beside it, without what the caller holds; false if there is none.
-- The head of a damaged one is empty, which no caller can decode.
local function standing(record, tail, message, page)
  local row = call('HMGET', record, 'n', 'h', 'p', 'd', 'r')
  if not row[1] then return false end
  local ranges = ranges_of(record, row[5])
  if not ranges then row[2], ranges = '', {} end
  row[5] = read(record, ranges.k, 'k', page + 1, math.huge, math.huge)
  row[6] = read(record, ranges.p, 'p', 0, math.huge, math.huge)
  row[7] = read(record, ranges.m, 'm', message + 1, math.huge, -tail)
  return row
end
