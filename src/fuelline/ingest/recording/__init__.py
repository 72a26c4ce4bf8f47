"""Our own recording: raw, compacted, of several hosts, or followed while the job runs."""
