"""Opening a log as a crash left it, and truncating it."""
