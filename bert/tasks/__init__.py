"""Labels, files and scores of fine-tuning tasks; one class per family of tasks."""
