"""From schedules to results: devices, compiling, linking, running, capturing, exporting.

Worker processes import `engine.workers`, so this file imports nothing.
"""
