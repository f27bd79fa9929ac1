"""The metadata store of a fleet: etcd, through the messages and stubs of `etcd3` on grpc.aio.

Nothing outside this package imports etcd3 or grpc. `etcd3`'s own client is not used: it ignores
limit and revision of a range, its watch neither resumes nor survives a restart of etcd (and spins
meanwhile), and it supports only one endpoint.
"""

import os

# Set before gRPC is imported, which reads it then. uvloop starts programs by a plain fork, in whose
# child gRPC's fork handlers would run: with its threads they may abort or hang before the exec
# (grpc issue #22624), for which the loop waits. A child that only executes a program needs none of
# them.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
