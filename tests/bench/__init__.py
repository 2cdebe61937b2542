"""Tests of the bench, on real processes, servers and namespaces."""
