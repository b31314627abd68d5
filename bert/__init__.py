"""BERT: pretraining and fine-tuning with TPUEstimator, on Cloud TPU, GPU or CPU."""

import os

__version__ = "0.1.0"

# TensorFlow's C++ part greets with a screenful of notes and false alarms; real errors come as exceptions. It
# reads this once, when it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# oneDNN's products are the faster ones on every CPU. TensorFlow takes them only where there is AVX-512 VNNI.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# On a TPU VM these make TensorFlow drive the TPU through PJRT, which has none of the infeed queues of TPUEstimator.
# They too are read when it is loaded.
for _name in ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"):
    os.environ.pop(_name, None)
