"""PySpark data source and jobs for Logfleet topics."""
