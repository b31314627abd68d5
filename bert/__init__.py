"""BERT: pretraining and fine-tuning with TPUEstimator, on Cloud TPU, GPU or CPU."""

import os

__version__ = "0.1.0"

# TensorFlow's C++ part greets with a screenful of notes and false alarms; real errors come as exceptions. It
# reads this once, when it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
