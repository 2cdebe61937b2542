#!/bin/sh
# There is no coverage report in this build.
echo "coverage is not available in the offline build" >&2
exit 1
