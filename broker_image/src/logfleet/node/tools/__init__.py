"""What a person runs beside or instead of a broker: doctor, adopting a Kafka, a fleet on this machine."""
