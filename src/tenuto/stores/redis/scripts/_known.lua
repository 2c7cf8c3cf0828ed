-- Has this `key` come before? Takes what it stands for as `came`, a string or false. Gives the write as `keyed`;
-- returns to the caller at once when it came with another body.
local keyed
if came then
  -- include: once
  keyed = read_keyed(came)
  if not keyed then return { 'corrupt', '' } end
  if keyed.fingerprint ~= fingerprint then return { 'reused' } end
end
