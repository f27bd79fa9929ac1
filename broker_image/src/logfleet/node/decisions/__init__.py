"""Why a broker did what it did: the journal of its decisions, and what is recorded in it."""
