"""Tests of what a running process tells of itself: control service, metrics, scalars, warnings."""
