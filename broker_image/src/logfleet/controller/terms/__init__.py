"""The controller as a machine: events in, effects out, no clock, store, task or log of its own.

`candidate.Candidate` is the whole of it: a broker that campaigns for controller, and its term once
it is elected. `candidate.step(event, now)` returns the effects of one event (`events`, `effects`).
What may follow what stands in the tables NEXT of `candidate`, `term`, `convergence`, `balance` and
`longest_logs`.

What its shell (`controller.running.loop`) owes:

* Events are stepped one at a time, in the order in which they happen. Before any other event the
  newest image is stepped, if the machine has an older one.
* The effects of a step are begun in their order. None has to be finished before the next step:
  what an effect leads to comes back as an event, however late. An answer that nobody waits for any
  more does no harm: numbers of writes and queries, leases and epochs are compared.
* Each Write, GrantLease, RevokeLease, ReadReceipts, Compact and QueryLogEnds gets its event, once.
  Errors of the store are values of it. The shell repeats nothing: the machine does.
* WakeAt replaces the time that was set before. A TimePassed that comes too early is harmless.
* `Stopped` is the last event. Its effects still have to be carried out.

Nothing has to be durable before anything else: what must be durable is a write to the store.
"""
