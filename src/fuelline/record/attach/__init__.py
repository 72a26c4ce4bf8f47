"""A job that is running already: what it is, what can be seen of it, and a recording from outside.

Nothing is put into the job. What hooks would have written is estimated from samples of its stacks
and thread states and from its counters, and written to the same files: everything after the spool
is as for a job that was recorded from its start.
"""
