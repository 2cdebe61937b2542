"""Pictures and pages of offline analysis. May import matplotlib, numpy, tfsched.errors and tfsched.ordering."""
