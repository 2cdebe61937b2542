"""Tests of tfsched.ordering."""
