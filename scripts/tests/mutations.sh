# Mutation tests: each block of tests/mutations/*.txt breaks one thing, and the test that it names must notice.

# MUTATIONS: names to run (default: all), separated by spaces.
mutations() { python3 scripts/tests/mutations.py build/mutations "$jobs" tests/mutations/*.txt; }
