"""Real brokers inside tests: a pytest plugin, and context managers for everything else.

def test_orders_arrive(kafka_broker):                  # a fixture of the plugin
    send(kafka_broker.bootstrap)                       # the code under test
    assert [each.value for each in kafka_broker.records("orders", count=1)] == [b"one"]

with logfleet.testing.Broker() as broker: ...          # unittest, notebooks
with logfleet.testing.Fleet(3, zones=["a", "b", "c"]) as fleet: ...

Four kinds of processes take part:

- the test process. It imports little of this package, starts no thread and runs no loop, so that
  frozen clocks, patched sockets and strict warnings of the user's tests do not meet the broker
- the prepared process (`testing.server`), one for each test process, so one for each worker of
  pytest-xdist. It has imported all that a broker needs, and forks one for each order
- brokers (`testing.broker_child`), which are real processes: they can be killed and stopped
- one client (`testing.client_child`), which creates topics and reads records for the tests, by
  Kafka's protocol and therefore from any Kafka

None outlives the test process, in whatever way that ends (`testing.server`).

**The control channel.** The test process has one socket pair to the prepared process and one to
each child, which it makes itself and hands on with the order to fork (SCM_RIGHTS): nothing of it is
in the file system or on a port. Both sides send frames (`testing.frames`): a length of four bytes,
big-endian, and a map in MessagePack. An order is {"id": n, "do": "name", ...}, where the other keys
are the arguments of that order. Its answer is {"id": n, "result": ...}, or {"id": n, "error":
"a sentence"}, which is raised as `OrderFailed` in the test. A child may answer later orders before
earlier ones. The child's own first frame has id 0: its result says where it serves, or its error
why it could not start. A child ends when its channel does.

Orders to a child are async functions in a table: `broker_child.ORDERS` (events, stop, ...) and
`client_child.ORDERS` (create_topic, records, ...). An order of a broker gets the `Running` broker;
faults are orders like any other (`testing.faults.orders`). What they put into a broker goes in by
arguments of the constructor of `node.broker.Broker`; nothing in `node` knows this package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logfleet.testing.brokers import Broker
    from logfleet.testing.errors import OrderFailed
    from logfleet.testing.faults.disturbing import ArmedFault, FaultMissed
    from logfleet.testing.fleets import Fleet
    from logfleet.testing.groups import Group
    from logfleet.testing.kafka import Kafka, Record
    from logfleet.testing.plugin import broker, fleet

__all__ = [
    "ArmedFault",
    "Broker",
    "FaultMissed",
    "Fleet",
    "Group",
    "Kafka",
    "OrderFailed",
    "Record",
    "broker",
    "fleet",
]

_HOMES = {
    "ArmedFault": "faults.disturbing",
    "Broker": "brokers",
    "FaultMissed": "faults.disturbing",
    "Fleet": "fleets",
    "Group": "groups",
    "Kafka": "kafka",
    "OrderFailed": "errors",
    "Record": "kafka",
    "broker": "plugin",
    "fleet": "plugin",
}


def __getattr__(name: str) -> object:
    """Import what is used, when it is used: pytest imports this package in every run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
