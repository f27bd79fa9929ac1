"""Topics that Topic resources ask for: the ledger of which exist because of which, what to do next, doing it, saying so."""
