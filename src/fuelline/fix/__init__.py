"""Remedies that act: settings tried on the running job, patches that can be undone."""
