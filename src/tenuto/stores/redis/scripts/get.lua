-- The head alone.
-- include: head
-- include: reach
-- include: touch
-- include: variables
return { 'ok', numbers, facts, title, variables }
