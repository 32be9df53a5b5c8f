"""From a table of events to interactions and splits."""
