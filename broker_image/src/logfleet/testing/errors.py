"""What goes wrong between a test and its brokers."""


class OrderFailed(Exception):
    """An order to a broker, or to the client that serves the tests, failed. The text says why."""


class ProcessEnded(OrderFailed):
    """A process ended before it answered, or does not answer in time."""
