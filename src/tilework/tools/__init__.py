"""The command line, the demonstration, and what they share."""
