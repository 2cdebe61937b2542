"""Scheduled all-reduces in the place of stock's. May import reading."""
