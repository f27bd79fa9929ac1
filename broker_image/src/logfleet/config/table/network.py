"""Keys of brokers: listeners, connections, requests."""

NETWORK = """
advertised.listeners LIST ro high null | Addresses announced to clients and other brokers; without a value those of listeners. | in node.listening
background.threads INT cluster high 10 1.. | Threads for work in the background; here one event loop does.
client.quota.callback.class CLASS ro low null | Java class that decides on quotas. | refused unless default
connection.failed.authentication.delay.ms INT ro low 100 0.. | A connection whose authentication failed is closed after this time.
connections.max.idle.ms LONG ro medium 600000 | A connection on which nothing moved for this long is closed; below 0 none is. | in node.listening
connections.max.reauth.ms LONG ro medium 0 | SASL connections must authenticate again after this time; 0 never. | refused unless default
controller.quota.window.num INT ro low 11 1.. | Windows over which the rate of topic changes is measured. | in quotas.client_quotas
controller.quota.window.size.seconds INT ro low 1 1.. | Length of one such window. | in quotas.client_quotas
delete.records.purgatory.purge.interval.requests INT ro medium 1 | Finished DeleteRecords requests that may stay on the waiting list.
early.start.listeners LIST ro high null | Listeners that take connections before the broker is ready.
fetch.max.bytes INT ro medium 57671680 1024.. | Upper bound of one fetch response; the first batch is sent whatever its size. | in node.handlers.fetch_rows
fetch.purgatory.purge.interval.requests INT ro medium 1000 | Finished fetches that may stay on the waiting list.
inter.broker.listener.name STRING ro medium null | Listener by which brokers reach each other. | in controller.running.access
listener.security.protocol.map STRING ro low SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | Security protocol of each listener name; only PLAINTEXT is served. | in config.broker
listeners LIST ro high PLAINTEXT://127.0.0.1:9092 | Addresses to listen on as NAME://host:port; an empty host means every interface. | in node.listening
max.connection.creation.rate INT cluster medium 2147483647 0.. | New connections per second that are taken, of the broker or behind a prefix of one listener; others wait. | in config.connection_limits
max.connections INT cluster medium 2147483647 0.. | Connections that are open at most, of the broker or behind a prefix of one listener; others wait. The listener between brokers is let in and the connection closed that was idle for longest. | in config.connection_limits
max.connections.per.ip INT cluster medium 2147483647 0.. | Connections from one address at most; others are closed at once. | in config.connection_limits
max.connections.per.ip.overrides STRING cluster medium "" | Other limits for some addresses, as host:count pairs. | in config.connection_limits
max.incremental.fetch.session.cache.slots INT ro medium 1000 0.. | Fetch sessions that are remembered at most; 0: none. | in node.broker
max.request.partition.size.limit INT ro medium 2000 1.. | Partitions in one DescribeTopicPartitions response at most. | in node.handlers.metadata
num.io.threads INT cluster high 8 1.. | Threads that carry out requests; here one event loop does.
num.network.threads INT cluster high 3 1.. | Threads that read and write sockets; here one event loop does.
producer.purgatory.purge.interval.requests INT ro medium 1000 | Finished Produce requests that may stay on the waiting list.
queued.max.request.bytes LONG ro medium -1 | Bytes of requests that may wait; here a connection waits with its own.
queued.max.requests INT ro high 500 1.. | Requests that may wait; here a connection has one in progress.
quota.window.num INT ro low 11 1.. | Windows over which the rates of client quotas are measured. | in quotas.client_quotas
quota.window.size.seconds INT ro low 1 1.. | Length of one such window. | in quotas.client_quotas
request.timeout.ms INT ro high 30000 | Longest wait for another broker's answer. | in controller.running.access
security.inter.broker.protocol STRING ro medium PLAINTEXT {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} | Names the listener between brokers by its protocol where inter.broker.listener.name is not set. | in config.broker
share.fetch.purgatory.purge.interval.requests INT ro medium 1000 | Finished share fetches that may stay on the waiting list.
socket.connection.setup.timeout.max.ms LONG ro medium 30000 | Longest time to set up a connection to another broker, after repeated failures.
socket.connection.setup.timeout.ms LONG ro medium 10000 | Time to set up a connection to another broker.
socket.listen.backlog.size INT ro medium 50 1.. | Connections that may wait to be accepted; 1,024 where it is not set. | in node.listening
socket.receive.buffer.bytes INT ro high 102400 | Receive buffer of a connection's socket; left to the system where it is -1 or not set. | in node.listening
socket.request.max.bytes INT ro high 104857600 1.. | Longest request; a longer one closes the connection. | in node.listening
socket.send.buffer.bytes INT ro high 102400 | Send buffer of a connection's socket; left to the system where it is -1. | in node.listening
telemetry.max.bytes INT ro low 1048576 1.. | Longest client telemetry that is accepted.
"""
