-- Reading moves the deadline where the session says so.

-- By a hundredth of the retention at least, so that reading stays cheap. Returns the numbers as they are then.
local function touched(n, numbers)
  if n[TOUCH] ~= ON_READ or n[IDLE] < 0 or n[EXPIRES] < 0 then return numbers end
  local moved, step = now + n[IDLE], n[IDLE] / 100
  local whole = math.floor(step)
  if step - whole > 0.5 or (step - whole == 0.5 and whole % 2 == 1) then whole = whole + 1 end
  if moved - n[EXPIRES] < whole then return numbers end
  n[EXPIRES] = moved
  back(n)
  numbers = struct.pack(LAYOUT, unpack(n, 1, 24))
  call('HSET', HEAD, 's', numbers)
  return numbers
end
