"""Recording: the spool and hooks live inside the job, the observer and the launcher outside it."""
