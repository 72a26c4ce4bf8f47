"""Hooks for TensorFlow: tf.data iterators, Keras on the TensorFlow backend, and saving."""
