"""Every configuration key: what it is, which values it may have, and what they mean."""
