"""Tests of whole clusters: every task is a process, every server and session the one that a user gets."""
