"""Kafka's configuration keys as data, one line each; `config.keys` parses the lines.

Names, types, update modes, importance, defaults and valid values are those of Apache Kafka 4.4.0
(its LogConfig, AbstractKafkaConfig, GroupConfig and DynamicBrokerConfig classes); keys marked
internal there are left out. Defaults that differ from Kafka's: listeners (loopback, not every
interface), log.dir, node.id, process.roles, controller.listener.names. Dynamic in Kafka, read at
start only here: listeners, listener.security.protocol.map. Keys that start with `logfleet.` are
ours.

Line: name TYPE [mode] importance default [valid] [| sentence] [| in module] [| from keys]
[| refused unless values].

Mode, broker keys only: ro (server.properties only), per-broker or cluster (dynamic), with `?`:
shown only while it is set. Default: `null` is no value, `""` the empty text. Valid: `low..high`
(either end may be absent), `|x` one more value, `{a,b}` a choice, `{a,b}i` in any case, `{a,b}d` of
a list whose repeated items are dropped, `nonempty`, or the name of a rule (`replicas`,
`offset-reset`). The sentence describes the key; a broker key without one is only the default of a
topic key. `in` names the module of logfleet that acts on the key; it is present if and only if the
key has an effect in this version. `from` names the broker keys that give a topic's or group's value
while it is not set, most specific first, `*n` where the unit differs. `refused unless` marks a key
that asks for protection which this version does not have: a broker starts only with its default,
the empty text or these values (`default` if there are none).
"""

from typing import Final

from logfleet.config.table.cluster import CLUSTER
from logfleet.config.table.group import GROUP
from logfleet.config.table.groups import GROUPS
from logfleet.config.table.log import LOG
from logfleet.config.table.network import NETWORK
from logfleet.config.table.own import OWN, OWN_OF_TOPICS
from logfleet.config.table.replication import REPLICATION
from logfleet.config.table.security import SECURITY
from logfleet.config.table.tiering import TIERING
from logfleet.config.table.topic import TOPIC as KAFKAS_OF_TOPICS
from logfleet.config.table.transactions import TRANSACTIONS

BROKER: Final = (
    CLUSTER + LOG + NETWORK + GROUPS + TRANSACTIONS + REPLICATION + TIERING + SECURITY + OWN
)
TOPIC: Final = KAFKAS_OF_TOPICS + OWN_OF_TOPICS

__all__ = ["BROKER", "GROUP", "TOPIC"]
