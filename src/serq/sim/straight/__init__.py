"""Programs without feedback: sessions pass plain queues once each, so they are worked out queue by queue, as arrays.

`plan` decides whether a program is such and lists what a session does; `flow` holds many sessions as columns;
`station` is a queue or a delay; `run` moves the flow and keeps the statistics.  The result is that of the event loop:
the same times, samples and counts, sums to 1e-9.
"""
