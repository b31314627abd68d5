"""From a laptop to a Cloud TPU and back: the verbs that work on machines elsewhere.

Standard library only, for Python 3.9 and later: a laptop that starts a training needs neither TensorFlow nor a virtual
environment, only python3 and the Google Cloud CLI. `python3 -m scripts.cloud VERB` reads its settings from the
environment, where the Makefile puts them as they were given.
"""
