"""Administrative APIs: topics, configurations, quotas, elections, reassignments."""
