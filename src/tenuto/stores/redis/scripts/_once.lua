-- What happens once: idempotency keys, and producers that number what they send.
-- A remembered write is text of NUL-separated parts; no id holds a NUL.
local REMEMBERED = 1000

local function read_keyed(raw)
  local done, number, w1, w2, r1, r2, turn, fingerprint = string.match(raw,
    '^(%d)%z(%d+)%z(%-?%d+)%z(%-?%d+)%z(%-?%d+)%z(%-?%d+)%z([^%z]*)%z([^%z]*)$')
  if not done then return nil end
  return {
    finished = done == '1', number = tonumber(number), turn = turn, fingerprint = fingerprint,
    first = tonumber(w1), last = tonumber(w2), reply_first = tonumber(r1), reply_last = tonumber(r2),
  }
end

local function write_keyed(key, record)
  redis.call('HSET', KEYED, key, string.format('%s\0%.0f\0%.0f\0%.0f\0%.0f\0%.0f\0', record.finished and '1' or '0',
    record.number, record.first, record.last, record.reply_first, record.reply_last)
    .. record.turn .. '\0' .. record.fingerprint)
end

-- The write a key stands for, or nil; the second result is an answer when the key stands for another body.
local function known(key, fingerprint)
  if key == '' then return nil end
  local raw = redis.call('HGET', KEYED, key)
  if not raw then return nil end
  local record = read_keyed(raw)
  if not record then return nil, { 'corrupt' } end
  if record.fingerprint ~= fingerprint then return nil, { 'reused' } end
  return record
end

local function remember(head, key, record)
  if key == '' then return end
  head.keyed = head.keyed + 1
  record.number = head.turns
  record.reply_first, record.reply_last = 0, -1
  write_keyed(key, record)
  redis.call('ZADD', ORDER, head.keyed, key)
  local count = redis.call('ZCARD', ORDER)
  if count == 1 then
    bare(head, KEYED)
    bare(head, ORDER)
  elseif count > REMEMBERED then
    redis.call('HDEL', KEYED, redis.call('ZPOPMIN', ORDER)[1])
  end
end

-- Whether the producer's number came before: 'old', 'new', or an answer when it skipped numbers.
local function numbered(head, producer, number)
  if producer == '' then return 'new' end
  local mark = head.absent and 0 or tonumber(redis.call('HGET', MARKS, producer) or 0)
  if not mark then return nil, { 'corrupt' } end
  if tonumber(number) > mark + 1 then return nil, { 'gap', mark + 1 } end
  return tonumber(number) <= mark and 'old' or 'new'
end

local function mark(head, producer, number)
  if producer == '' then return end
  if redis.call('HSET', MARKS, producer, number) == 1 then bare(head, MARKS) end
end
