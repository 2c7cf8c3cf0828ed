-- Make up a session where there is none and the call allows it. What a new head would be stands in ARGV from
-- `new_at` on: numbers, facts, title, then variables. Returns to the caller at once where it may not.
-- Gives why it is `made`, '' when it was there. Nothing is written before the call is sure to succeed.
local made = ''
if answer then
  if create == 0 or (answer[1] ~= 'absent' and answer[1] ~= 'expired') then return answer end
  raw, made, came, mark = ARGV[new_at], answer[1], false, false
  n, owner = { struct.unpack(LAYOUT, raw) }, string.sub(raw, SIZE + 1)
  facts, title = ARGV[new_at + 1], ARGV[new_at + 2]
end
