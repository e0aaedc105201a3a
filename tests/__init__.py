"""All tests; CONTRIBUTING.md says what each directory is for."""
