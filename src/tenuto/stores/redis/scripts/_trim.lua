-- Drop a beginning of the log. Looks at what goes and little more, never at all of it.
local stored, oldest = n[MESSAGES], n[TURNS] - n[MAX_TURNS]
local over = n[MAX_MESSAGES] >= 0 and math.max(0, stored - n[MAX_MESSAGES]) or 0
local passed, step, reached = 0, 1, n[MAX_TURNS] < 0 or oldest <= 0
while passed < stored and not reached do
  local members = call('ZRANGE', LOG, passed + 1, passed + step)
  for i = 1, #members do
    local belongs = tonumber(string.match(members[i], '^{"seq":%d+,"turn":(%d+),'))
    reached = (belongs or 0) > oldest
    if reached then break end
    passed = passed + 1
  end
  step = math.min(step * 2, 64)
end
over = math.max(over, passed)
if over > 0 then
  call('ZREMRANGEBYRANK', LOG, 1, over)
  n[MESSAGES] = stored - over
end
