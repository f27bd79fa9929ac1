"""The contract of the metadata store and the cluster image built from its watch."""
