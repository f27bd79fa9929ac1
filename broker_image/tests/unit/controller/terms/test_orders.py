"""Whatever order events come in: requests get true answers, and the cluster converges."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from logfleet.controller.terms import effects as to_do
from logfleet.controller.terms import events
from logfleet.controller.terms.candidate import Controlling, Finishing
from logfleet.metadata.store import Txn

from broker_image.tests.unit.controller.terms.machine_rig import FATES, Node, World, put

NODES = st.integers(0, 1)
BROKERS = st.integers(1, 3)


class Orders(RuleBasedStateMachine):
    """Two candidates, three brokers, and a store whose answers may be late or lost."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.nodes = [Node(self.world, 1), Node(self.world, 2)]
        self.written: set[str] = set()
        self.requests = 0
        self.world.register(1)

    @rule(node=NODES)
    def publish(self, node: int) -> None:
        self.nodes[node].publish()

    @rule(node=NODES, which=st.integers(0, 20), fate=st.sampled_from(FATES))
    def answer(self, node: int, which: int, fate: str) -> None:
        pending = self.nodes[node].pending
        if pending:
            self.nodes[node].answer(pending[which % len(pending)], fate)

    @rule(node=NODES, times=st.integers(1, 10))
    def go_on(self, node: int, times: int) -> None:
        for _ in range(times):
            self.nodes[node].publish()
            if self.nodes[node].pending:
                self.nodes[node].answer(self.nodes[node].pending[0])

    @rule(ms=st.sampled_from((10, 100, 2_000, 10_000)))
    def wait(self, ms: int) -> None:
        self.world.now_ms += ms
        for node in self.nodes:
            node.tick()

    @rule()
    def apply_late(self) -> None:
        if self.world.late:
            self.world.commit(self.world.late.pop(0))

    @rule(broker=BROKERS, leaving=st.booleans())
    def register(self, broker: int, *, leaving: bool) -> None:
        if broker not in self.world.image.brokers or leaving:
            self.world.register(broker, leaving=leaving)

    @rule(broker=BROKERS)
    def vanish(self, broker: int) -> None:
        self.world.vanish(broker)

    @rule()
    def depose(self) -> None:
        self.world.depose()

    @rule(node=NODES, is_reported=st.booleans())
    def end_lease(self, node: int, *, is_reported: bool) -> None:
        state = self.nodes[node].candidate.state
        if isinstance(state, Controlling | Finishing):
            self.world.end_lease(state.lease)
            if is_reported:
                self.nodes[node].step(events.LeaseLost(state.lease))

    @rule(node=NODES)
    def request(self, node: int) -> None:
        self.requests += 1
        self.nodes[node].request(self.requests, put(f"x/{self.requests}"))

    @rule(node=NODES, number=st.integers(0, 5))
    def repeat_an_old_answer(self, node: int, number: int) -> None:
        """An answer comes twice, or to a write of a term that has ended."""
        found = self.nodes[node]
        in_flight = {each.number for each in found.pending if isinstance(each, to_do.Write)}
        if number not in in_flight:
            found.step(events.WriteAnswered(number, self.world.commit(Txn())))

    @invariant()
    def answers_are_true(self) -> None:
        for node in self.nodes:
            for number, answer in node.answers.items():
                is_written = self.world.keyspace.get(f"x/{number}") is not None
                if answer == "done":
                    assert is_written, f"request {number} was answered, and is not written"
                elif isinstance(answer, to_do.NotController):
                    assert not is_written, f"request {number} is written, and may be sent again"

    @invariant()
    def nothing_has_failed(self) -> None:
        for node in self.nodes:
            for report in node.reports:
                assert report.error is None, report

    def is_at_rest(self) -> bool:
        """Whether one broker controls, and all are let in and all requests answered."""
        terms = [node.candidate.term for node in self.nodes]
        brokers = self.world.image.brokers.values()
        return (
            terms.count(None) == 1
            and all(each.is_active or each.is_draining for each in brokers)
            and sum(len(node.answers) for node in self.nodes) == self.requests
        )

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for broker in (1, 2, 3):
            self.world.register(broker)
        for _ in range(30):
            self.world.now_ms += 2_500
            for node in self.nodes:
                node.tick()
                node.settle()
            if self.is_at_rest():
                break
        self.answers_are_true()
        self.nothing_has_failed()
        assert self.is_at_rest(), self.world.image.brokers
        answers = [answer for node in self.nodes for answer in node.answers]
        assert sorted(answers) == list(range(1, self.requests + 1)), "each request is answered"


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=20, stateful_step_count=50, deadline=None)
