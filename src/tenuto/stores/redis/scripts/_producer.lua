-- Producers number what they send. Takes the last number known as `mark`; says whether this one is `fresh`, and
-- returns to the caller at once when numbers were skipped.
local fresh = true
if producer ~= '' then
  mark = tonumber(mark or 0)
  if not mark then return { 'corrupt', '' } end
  if number > mark + 1 then return { 'gap', mark + 1 } end
  fresh = number > mark
end
