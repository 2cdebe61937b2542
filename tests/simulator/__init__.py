"""Tests of tfsched.simulator."""
