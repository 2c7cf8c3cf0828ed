-- Change the head.
-- include: head
local _, expected = struct.unpack('>i8i8', ARGV[5])
-- include: reach
if expected >= 0 and expected ~= n[VERSION] then return { 'version', n[VERSION] } end
local at, more, foreseen = 6, {}
-- include: patch
-- include: changed
-- include: variables
return { 'ok', numbers, facts, title, variables }
