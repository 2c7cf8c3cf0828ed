-- Reading moves the deadline where the session says so, by a hundredth of the retention at least, so that reading
-- stays cheap. A server that takes no writes is still read, and the deadline stays. Gives the `numbers` as they are
-- then.
local numbers = raw
if n[TOUCH] == ON_READ and n[IDLE] >= 0 and n[EXPIRES] >= 0 then
  local moved, step = now + n[IDLE], n[IDLE] / 100
  local whole = math.floor(step)
  if step - whole > 0.5 or (step - whole == 0.5 and whole % 2 == 1) then whole = whole + 1 end
  if moved - n[EXPIRES] >= whole then
    local backed = n[BACKED]
    n[EXPIRES] = moved
    local written = redis.pcall('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n)) .. owner)
    if type(written) ~= 'table' then
      -- include: back
      numbers = struct.pack(LAYOUT, unpack(n)) .. owner
      if n[BACKED] ~= backed then call('HSET', HEAD, 's', numbers) end
    end
  end
end
