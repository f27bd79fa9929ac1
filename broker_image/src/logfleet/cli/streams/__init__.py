"""Records on standard input and output: formats, decoding, printing, sending."""
