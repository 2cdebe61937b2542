"""Tests of tfsched.tuning."""
