-- Add to totals that are kept in two parts, of 2^40 and of 1: exact beyond what a Lua number holds.
tokens_low, cost_low = n[TOKENS + 1] + tokens_low, n[COST + 1] + cost_low
if tokens_low >= 1099511627776 then tokens_high, tokens_low = tokens_high + 1, tokens_low - 1099511627776 end
if cost_low >= 1099511627776 then cost_high, cost_low = cost_high + 1, cost_low - 1099511627776 end
n[TOKENS], n[TOKENS + 1], n[COST], n[COST + 1] = n[TOKENS] + tokens_high, tokens_low, n[COST] + cost_high, cost_low
