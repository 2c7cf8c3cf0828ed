"""How much room sessions take, how a large store answers, and what a given load needs."""
