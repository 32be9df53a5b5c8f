"""The papers' tables as files: experiments, their runner and their report."""
