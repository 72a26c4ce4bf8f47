"""Changes to tf.data pipelines of a running job that keep every batch bit for bit."""
