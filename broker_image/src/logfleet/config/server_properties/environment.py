"""A broker's keys as environment variables, as compose files for Apache Kafka's image set them."""

from collections.abc import Mapping
from typing import Final

NO_KEYS: Final = frozenset(
    {
        "VERSION",
        "HEAP_OPTS",
        "LOG4J_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "TOOLS_LOG4J_LOGLEVEL",
        "JMX_HOSTNAME",
    }
)
"""Variables of Java and its logging, without the prefix (Kafka: KafkaDockerWrapper)."""


def keys_in(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Keys and values of the variables with this prefix (KAFKA_LOG_DIRS is log.dirs).

    One underscore is a dot, two are an underscore, three a dash (Kafka:
    KafkaDockerWrapper.getServerConfigsFromEnv).
    """
    found = {}
    for name, value in environment.items():
        rest = name.removeprefix(prefix)
        if rest and name.startswith(prefix) and rest not in NO_KEYS:
            dotted = rest.lower().replace("_", ".")
            found[dotted.replace("...", "-").replace("..", "_")] = value
    return found
