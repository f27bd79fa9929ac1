"""Topic resources: the ledger, the plan, and the actions on the brokers' topics."""
