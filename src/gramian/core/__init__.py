"""Parameters, recipes, scorers, recommenders and the registry."""
