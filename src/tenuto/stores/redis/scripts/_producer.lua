-- Producers number what they send.

-- Whether a number is new; the second result is an answer when numbers were skipped.
local function is_new(producer, number, absent)
  if producer == '' then return true end
  local mark = absent and 0 or tonumber(call('HGET', MARKS, producer) or 0)
  if not mark then return nil, { 'corrupt', '' } end
  if number > mark + 1 then return nil, { 'gap', mark + 1 } end
  return number > mark
end

local function mark(producer, number)
  if producer ~= '' and call('HSET', MARKS, producer, number) == 1 then bare[#bare + 1] = MARKS end
end
