"""Programs started beside gRPC's threads.

In a process of its own, as gRPC takes its settings once.
"""

import subprocess
import sys

PROGRAM = """
import asyncio, socket, uvloop
from logfleet.io.etcd import endpoints
import grpc, grpc.aio

async def main():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with grpc.insecure_channel(target) as threaded:
            async with grpc.aio.insecure_channel(target):
                call = threaded.unary_unary("/never/answered").future(b"", wait_for_ready=True)
                for _ in range(20):
                    child = await asyncio.create_subprocess_exec("true")
                    assert await child.wait() == 0
                assert not call.done()
                call.cancel()

uvloop.run(main())
"""


def test_a_program_is_started_without_grpcs_fork_handlers() -> None:
    """They log a line where they give up.

    Where they do not, a child may abort or hang before its exec.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
