"""Everything that checks k3deploy: unit, property, golden and contract tests, and the lab they run against."""
