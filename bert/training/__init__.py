"""Device choice, estimator, hooks, checkpoints, run record."""
