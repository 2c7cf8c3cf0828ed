-- Drop a beginning of the log. Looks at what goes and little more, never at all of it.
local count, oldest = n[MESSAGES], n[TURNS] - n[MAX_TURNS]
local over = n[MAX_MESSAGES] >= 0 and math.max(0, count - n[MAX_MESSAGES]) or 0
local at, step, found = 0, 1, n[MAX_TURNS] < 0 or oldest <= 0
while at < count and not found do
  local members = call('ZRANGE', LOG, at + 1, at + step)
  for i = 1, #members do
    local turn = tonumber(string.match(members[i], '^{"seq":%d+,"turn":(%d+),'))
    found = (turn or 0) > oldest
    if found then break end
    at = at + 1
  end
  step = math.min(step * 2, 64)
end
over = math.max(over, at)
if over > 0 then
  call('ZREMRANGEBYRANK', LOG, 1, over)
  n[MESSAGES] = count - over
end
