from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.transactions.transactions_rig import TransactionsRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TransactionsRig]:
    host = Host(tmp_path / "data")
    host.know_topic("t", {0: 1, 1: 1})
    yield TransactionsRig(host, str(tmp_path))
    host.close()
