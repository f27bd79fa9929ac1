"""Controller decisions: placement, topic changes, configuration keys and their meaning."""
