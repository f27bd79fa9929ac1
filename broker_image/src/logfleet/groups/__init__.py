"""The consumer group coordinator, pure: decides records and answers, applies records."""
