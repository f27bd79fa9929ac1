"""A log is compacted now, whatever the cleaner would choose."""

import msgspec
import pytest

from broker_image.tests.unit.log.compaction.test_cleaner import CONFIG, Rig

pytestmark = pytest.mark.asyncio


async def test_a_log_is_compacted_on_demand_however_little_of_it_is_dirty(tmp_path):
    rig = Rig(tmp_path)
    mostly_clean = msgspec.structs.replace(CONFIG, min_cleanable_dirty_ratio=1.0)
    first, second = rig.add(0), rig.add(1)
    first.log.config = mostly_clean
    for _ in range(2):  # the second time nothing is dirty
        await rig.cleaner.compact_now(first)
        assert rig.cleaner.stats.cleanings == 1
    assert first.log.first_dirty_offset == first.log.segments[-1].base_offset
    assert second.log.first_dirty_offset == 0
    await rig.clean_until(lambda: rig.cleaner.stats.cleanings == 2)
