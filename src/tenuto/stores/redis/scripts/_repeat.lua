-- Writes that may have come before: what their keys and numbers say.

-- The write a key stands for, or nil; the second result is an answer when the key stands for another body.
local function known(raw, fingerprint)
  if not raw then return nil end
  local record = read_keyed(raw)
  if not record then return nil, { 'corrupt', '' } end
  if record.fingerprint ~= fingerprint then return nil, { 'reused' } end
  return record
end

-- Have a new key written with the head, in the place of the one that came a thousand keys before.
local function remember(n, more, key, raw)
  local place = 'r' .. n[KEYS_SEEN] % REMEMBERED
  if n[KEYS_SEEN] >= REMEMBERED then
    local old = call('HGET', HEAD, place)
    local record = old and call('HGET', HEAD, 'k' .. old)
    record = record and read_keyed(record)
    -- a key that was forgotten and came again stands at a later place too
    if record and record[CAME] == n[KEYS_SEEN] - REMEMBERED then call('HDEL', HEAD, 'k' .. old) end
  end
  n[KEYS_SEEN] = n[KEYS_SEEN] + 1
  local at = #more
  more[at + 1], more[at + 2], more[at + 3], more[at + 4] = 'k' .. key, raw, place, key
end
