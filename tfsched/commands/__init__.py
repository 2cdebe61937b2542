"""The commands of the command line, one file each. May import every part of tfsched; nothing but tfsched.cli imports it."""
