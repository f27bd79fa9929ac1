"""`python -m e2e.kafka`: the jars of Apache Kafka that tests run are in the cache afterwards."""

from e2e.harness.kafka import HERE, KafkaUnavailable, classpath

try:
    for pom in sorted(HERE.glob("*.xml")):
        classpath(pom.stem)
except KafkaUnavailable as missing:
    raise SystemExit(str(missing)) from None
