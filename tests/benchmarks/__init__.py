"""`make bench`: what things cost, beside floors of the same run. Nothing here judges a time: a busy machine must not fail a test."""
