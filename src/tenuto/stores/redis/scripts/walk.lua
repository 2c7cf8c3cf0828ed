-- The places of an index behind one, in order of score and member, with their scores. KEYS: the index. ARGV: '1' for the
-- highest first, how many; the score and member to begin behind.
-- Many may share a score: their ranks are halved until the member is found, or where it would be.
local index, newest, count, score, member = KEYS[1], ARGV[1] == '1', tonumber(ARGV[2]), ARGV[3], ARGV[4]
local order = newest and {'REV'} or {}

-- Members are ordered by their bytes; Lua compares as the server's locale says.
local function is_behind(one)
  for at = 1, math.min(#one, #member) do
    local here, there = one:byte(at), member:byte(at)
    if here ~= there then return (here > there) ~= newest end
  end
  return #one ~= #member and (#one > #member) ~= newest
end

local first = 0
if score then
  first = newest and redis.call('ZCOUNT', index, '(' .. score, '+inf') or redis.call('ZCOUNT', index, '-inf', '(' .. score)
  local last = first + redis.call('ZCOUNT', index, score, score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    if is_behind(redis.call('ZRANGE', index, middle, middle, unpack(order))[1]) then
      last = middle
    else
      first = middle + 1
    end
  end
end
order[#order + 1] = 'WITHSCORES'
return redis.call('ZRANGE', index, first, first + count - 1, unpack(order))
