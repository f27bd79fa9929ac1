"""What commands print on stdout: tables, names or JSON, and the results of changes."""
