-- The head as it stands, for listings, which check scope and deadline themselves.
-- include: head
caller, now = '', -1
-- include: reach
-- include: variables
return { 'ok', raw, facts, title, variables }
