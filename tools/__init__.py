"""What builds and checks the package: native libraries, wheels, the table of compatibility. Not installed."""
