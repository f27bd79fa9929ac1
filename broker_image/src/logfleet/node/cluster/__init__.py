"""Agreement with the other brokers: registration, control, following the metadata store."""
