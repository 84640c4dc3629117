"""Missed mutants that no launch, or not the one of their case, can tell from the kernel: why, one by one."""

EQUIVALENT = {}
