"""Transaction coordinators on the leaders of `__transaction_state`, and their markers."""
