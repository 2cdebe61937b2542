"""The evaluations of the papers, one file a paper or part of one; benchmarks/papers.py runs them."""
