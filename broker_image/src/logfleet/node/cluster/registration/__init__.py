"""This broker's registration under a lease.

The registration `broker/ID` is created if absent, never over another's: two living processes with
one id must be impossible (KAFKA-14885: an isolated old broker and its replacement lost data). Its
create revision is the broker epoch (KIP-380), which every other rule compares. A process that finds
the id taken waits until the holder's registration has ended.

A registration ends with its lease, or when the cluster ends it: the key is gone or made by another,
or fenced by the controller (etcd before 3.4.38, 3.5.23 and 3.6.5 may confirm keepalives of a
revoked lease). Then this broker leads nothing until it has registered again.

A broker leaves as Kafka does in a controlled shutdown: it announces it
(`logfleet.controller.brokers.leaving`), goes on serving while the controller moves its leaderships
elsewhere, and stops when none is left, or when its time is up. If every broker is leaving, there is
none to hand over to, and all stop at once.

`machine` decides all of this, without clock, store or task: `events` go in, effects come out.
`registrar` carries the effects out. `states` holds the states and what may follow what:

    New -> Granting -> CheckingLevel -> Claiming -> Standing <-> Updating
              ^                            |            |            |
              |       another has the id   v            v            v
              +-- EndingFormer <---- GivingBack         +-> Ending <-+
              +-- Taken <---------------+                     |
              +-----------------------------------------------+

    Claiming -> Granting               its lease has ended
    Claiming -> CheckingLevel          the feature level was written meanwhile
    any state -> HasFailed             the broker must not go on
    any state -> Stopping -> Stopped   the broker has stopped
"""
