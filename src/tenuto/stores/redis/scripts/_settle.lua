-- Make a session real that was made up.
if made ~= '' then
  -- include: lay
  local at, removals = new_at + 3, 0
  -- include: set
end
