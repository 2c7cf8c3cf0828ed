-- Have a new `key` written with the head, in the place of the one that came a thousand keys before.
-- Takes what it stands for as `record`.
local ring = 'r' .. struct.pack('>i2', n[KEYS_SEEN] % REMEMBERED)
if n[KEYS_SEEN] >= REMEMBERED then
  -- include: once
  local old = call('HGET', HEAD, ring)
  local forgotten = old and call('HGET', HEAD, 'k' .. old)
  forgotten = forgotten and read_keyed(forgotten)
  -- a key that was forgotten and came again stands at a later place too
  if forgotten and forgotten[CAME] == n[KEYS_SEEN] - REMEMBERED then call('HDEL', HEAD, 'k' .. old) end
end
local at = #more
more[at + 1], more[at + 2], more[at + 3], more[at + 4] = 'k' .. key, record, ring, key
n[KEYS_SEEN] = n[KEYS_SEEN] + 1
