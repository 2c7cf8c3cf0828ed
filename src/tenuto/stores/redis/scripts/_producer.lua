-- Producers number what they send.

-- Whether a number is new after the last one known; the second result is an answer when numbers were skipped.
local function is_new(producer, number, mark)
  if producer == '' then return true end
  mark = tonumber(mark or 0)
  if not mark then return nil, { 'corrupt', '' } end
  if number > mark + 1 then return nil, { 'gap', mark + 1 } end
  return number > mark
end
