"""Benchmarks: ratios against a rival or a bound in the same run. Never part of the test suite."""
