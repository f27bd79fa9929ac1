"""Group coordinators on the leaders of `__consumer_offsets`: loading, running, standing by."""
