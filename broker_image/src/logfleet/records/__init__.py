"""Record batch v2: header, checksum, compression within a byte budget, building and iterating."""
