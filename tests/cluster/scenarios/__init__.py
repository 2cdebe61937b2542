"""What the users' programs do in the tests of clusters. Runs inside of task processes; the tests only ask for it by name."""
