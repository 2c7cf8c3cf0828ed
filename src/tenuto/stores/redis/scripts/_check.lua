-- Is there a session for the caller? Takes `raw`, the numbers and the owner as they were read.
-- Gives the numbers as `n` and the `owner`, or an `answer` that says why there is nothing.
local length, n, owner, answer = raw and #raw or 0
if length == SIZE + 32 or length == SIZE then
  n, owner = { struct.unpack(LAYOUT, raw) }, string.sub(raw, SIZE + 1)
end
if n and n[1] == FORMAT then
  local why = n[EXPIRES] >= 0 and n[EXPIRES] <= now and 'expired' or caller ~= '' and caller ~= owner and 'foreign'
  if why then answer = { why, call('HGET', HEAD, 'f') or '' } end
else
  local format, why = length >= 8 and struct.unpack('>i8', raw), 'corrupt'
  if format and format > FORMAT and format < 1000 then why = 'newer' end
  if format and format > 0 and format < FORMAT then why = 'older' end
  if not raw and call('EXISTS', HEAD) == 0 then why = 'absent' end
  -- What is absent takes as long as what is there and not for the caller: time must not tell them apart.
  local decoy = string.rep('-', SIZE)
  local _ = { struct.unpack(LAYOUT, decoy) }
  answer = { why, string.sub(decoy, 1, 150) }
end
