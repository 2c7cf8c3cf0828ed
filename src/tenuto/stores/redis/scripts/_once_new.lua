-- Writes that may have come before: what their keys and numbers say.

-- The write a key stands for, or nil; the second result is an answer when the key stands for another body.
local function known(key, fingerprint)
  local raw = key ~= '' and call('HGET', KEYED, key)
  if not raw then return nil end
  local record = read_keyed(raw)
  if not record then return nil, { 'corrupt', '' } end
  if record.fingerprint ~= fingerprint then return nil, { 'reused' } end
  return record
end

local function remember(n, key, record)
  n[HAS_KEYS] = 1
  write_keyed(key, record)
  local count = call('RPUSH', ORDER, key)
  if count == 1 then
    bare[#bare + 1] = KEYED
    bare[#bare + 1] = ORDER
  elseif count > REMEMBERED then
    call('HDEL', KEYED, call('LPOP', ORDER))
  end
end
