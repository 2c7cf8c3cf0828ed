-- needs: head write once create
-- Append messages outside a turn.
local batch = take()
local key, fingerprint, producer, number = take(), take(), take(), take()
local tokens, cost = take(), take()
local head, why = find_or_create(batch)
if not head then return why end
local keyed, clash
if not head.absent then keyed, clash = known(key, fingerprint) end
if clash then return clash end
if keyed then return { 'duplicate', told(head), between(keyed.first, keyed.last) } end
local standing
standing, clash = numbered(head, producer, number)
if clash then return clash end
if standing == 'old' then return { 'duplicate', told(head), {} } end

settle(head)
mark(head, producer, number)
local place = head.turns + 1
local first, last = append(head, place)
remember(head, key, { finished = true, turn = batch, fingerprint = fingerprint, first = first, last = last })
spend(head, tokens, cost)
changed(head)
return { 'ok', told(head), first, place, head.absent and 1 or 0, head.replaces and 1 or 0 }
