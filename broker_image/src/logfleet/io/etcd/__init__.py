"""The metadata store of a fleet: etcd, through the messages and stubs of `etcd3` on grpc.aio.

Nothing outside this package imports etcd3 or grpc. `etcd3`'s own client is not used: it ignores limit and revision of a range,
its watch neither resumes nor survives a restart of etcd (and spins meanwhile), and it knows one endpoint.
"""
