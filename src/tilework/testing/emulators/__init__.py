"""Devices in software: what a driver talks to through its door, with a ledger of its own."""
