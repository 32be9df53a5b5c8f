"""Model selection: from a table of events to the best model within a budget of time and memory, and its retraining."""
