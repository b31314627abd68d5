"""BERT: pretraining and fine-tuning with TPUEstimator, on Cloud TPU, GPU or CPU."""

__version__ = "0.1.0"
