import errno
import os
import struct
from pathlib import Path

import pytest

from broker_image.tests.unit.net.connection_rig import Slice, running

pytestmark = pytest.mark.asyncio


async def test_without_a_descriptor_to_send_files_on_the_connection_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1_000_000)
    (tmp_path / "segment").write_bytes(content)

    def refuse(_fd: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    request = b"\0\1F" + struct.pack(">ii", 0, 1_000_000)
    async with running(tmp_path) as rig:
        for parked in (False, True):
            with monkeypatch.context() as patched:
                patched.setattr(os, "dup", refuse)
                async with rig.client() as client:
                    if parked:
                        client.send(b"\0\1P")
                        await rig.service.until_seen(2)
                        body = Slice(rig.service.fd, 0, 1_000_000)
                        rig.service.parked[0].set_result([struct.pack(">i", 1_000_000), body])
                    else:
                        client.send(request)
                    assert await client.is_closed_by_broker()
            await rig.until_no_connection()
        async with rig.client() as client:
            client.send(request)
            assert await client.receive() == b"<<" + content + b">>>"
