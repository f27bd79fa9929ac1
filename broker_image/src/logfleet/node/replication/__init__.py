"""The broker's part in replication: copying from leaders, and writing ISRs as a leader."""
