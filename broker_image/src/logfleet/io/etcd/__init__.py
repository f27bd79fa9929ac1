"""The metadata store of a fleet: etcd, through the messages and stubs of `etcd3` on grpc.aio.

Nothing outside this package imports etcd3 or grpc. `etcd3`'s own client is not used: it ignores limit and revision of a range,
its watch neither resumes nor survives a restart of etcd (and spins meanwhile), and it knows one endpoint.
"""

import os

# Read when gRPC is imported, thus before any module here does. uvloop starts programs by a plain fork, in whose child gRPC's fork handlers
# would run: beside its threads they may abort or hang before the exec (grpc issue #22624), and the loop waits for that exec.
# A child that only executes a program needs none of them.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
